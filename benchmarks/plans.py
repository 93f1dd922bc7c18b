"""Compare plans of public models with what Megatron-LM runs, at equal memory and with a barrier.

A step costs what the objective `step` says: it ends when all devices have ended. There are two baselines:

- **default**: the uniform split. Every stage has equally many blocks, or the first stages have one more if
  the number of blocks is no multiple of the number of stages. The first stage also has the embedding, and the
  last stage the head. It is scheduled by interleaved 1F1B with two stages per device: without recomputation
  if that fits the memory, otherwise with all blocks recomputed. If neither fits, the table has no number.
- **best**: the best that was found for Megatron-LM, with 1F1B or interleaved 1F1B on any cut, the default
  included.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, NamedTuple

from growing_table import CONDITIONS, append, conditions, lines_of, open_tables, run_script

from tightpipe import InputError, NoScheduleError, PlanningProblem, plan
from tightpipe.base.sources import planner_version
from tightpipe.model.metrics import cost
from tightpipe.model.placement import Placement
from tightpipe.planning.alternatives import uniform_candidates
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.problem import RUNTIMES
from tightpipe.planning.public_models import find_shape, load_gpus
from tightpipe.planning.runtimes import megatron_schedule
from tightpipe.planning.shapes import Training, problem_of


class Case(NamedTuple):
    """A model and its cluster, in which `data_parallel` pipelines work side by side.

    A pipeline has `devices` devices of `tensor_parallel` GPUs each, and runs `microbatches` microbatches in a
    training step.
    """

    model: str
    devices: int
    tensor_parallel: int
    data_parallel: int
    microbatches: int


CASES = (
    Case("llama-2-7b", 8, 1, 4, 32),
    Case("llama-3-8b", 8, 1, 4, 32),
    Case("mistral-7b", 8, 1, 4, 32),
    Case("nemotron-4-15b", 8, 2, 4, 32),
    Case("deepseek-moe-16b", 8, 2, 4, 32),
    Case("llama-2-13b", 16, 1, 4, 64),
    Case("gemma-2-27b", 16, 2, 4, 64),
    Case("qwen2.5-32b", 16, 2, 4, 64),
    Case("llama-3-70b", 16, 4, 4, 64),
    Case("gpt-3-175b", 32, 8, 4, 128),
)
SEED = 0
BASELINES = ("default", "best")
"""What a plan is compared with: what Megatron-LM runs without and with a layout of its stages."""
COLUMNS = (
    *(*Case._fields, "objective", "cost", "bound", "gap", "proof", "seconds", "placement", "chunks"),
    *("recomputed", *(f"{what} {label}" for label in BASELINES for what in ("megatron", "over"))),
    *("time_limit", "workers", "seed", "planner", *CONDITIONS),
)


def problem(case: Case) -> PlanningProblem:
    """Return the planning problem of a case, on GPUs of the type H100 with 80 GB."""
    training = Training(load_gpus()["h100"], 0.6, 1, None, case.tensor_parallel, case.data_parallel, False)
    entries = {
        "devices": case.devices,
        "microbatches": case.microbatches,
        "node_size": 8 // case.tensor_parallel,
    }
    return problem_of(find_shape(case.model), training, **entries, reserve="4 GB", recompute=["full"])


def default_cost(asked: PlanningProblem) -> int | None:
    """Return the cost of the uniform split in ticks; None if it does not fit, even with recomputation."""
    kept, *_, recomputed = uniform_candidates(asked, Placement("loop", asked.cluster.devices[0]))
    for candidate in (kept, recomputed):
        try:
            return cost(megatron_schedule(instance_of(asked, candidate)))
        except (InputError, NoScheduleError):
            continue
    return None


def best_cost(asked: PlanningProblem, seconds: float, workers: int) -> int | None:
    """Return the cost of the best plan for Megatron-LM that is found in the time; None if none is."""
    placements = RUNTIMES["megatron"].placements
    space = replace(asked.space, runtime="megatron", placements=placements)
    return plan(replace(asked, space=space), time_limit=seconds, workers=workers, seed=SEED).cost


def row_of(case: Case, seconds: float, workers: int) -> dict[str, Any]:
    """Return the table's line for a case, by column: its plan, and the costs of the baselines."""
    asked = problem(case)
    found = plan(asked, time_limit=seconds, workers=workers, seed=SEED)
    assert found.candidate is not None
    row: dict[str, Any] = case._asdict() | {
        "objective": str(asked.space.objective),
        "cost": found.cost,
        "bound": found.bound,
        "gap": round(found.gap or 0.0, 6),
        "proof": str(found.proof),
        "seconds": round(found.seconds, 1),
        "placement": found.candidate.placement.name,
        "chunks": found.candidate.placement.chunks,
        "recomputed": sum(map(len, found.candidate.recomputed)),
    }
    default, best = default_cost(asked), best_cost(asked, seconds, workers)
    known = [ticks for ticks in (default, best) if ticks is not None]
    for label, ticks in zip(BASELINES, (default, min(known, default=None)), strict=True):
        row[f"megatron {label}"] = ticks
        row[f"over {label}"] = None if ticks is None else round(ticks / (found.cost or 1), 4)
    return row | {
        "time_limit": seconds,
        "workers": workers,
        "seed": SEED,
        "planner": planner_version(),
        **conditions(),
    }


PLACES = {"linear": "linear", "loop": "loop", "v": "V", "wave": "wave"}
NUMBERS = ("no", "one stage", "two stages", "three stages", "four stages")


def page_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of docs/plan.md: of a number that is missing, a dash."""
    head = ("model", "devices", "cut and placement", "gap", "over the default", "over the best", "seconds")
    body = [
        (
            row["model"],
            row["devices"],
            f"{PLACES[row['placement']]}, {NUMBERS[int(row['chunks'])]} per device",
            "0" if row["bound"] == row["cost"] else f"{100 * float(row['gap']):.3f} %",
            *(f"{float(row[f'over {label}']):.2f}" if row[f"over {label}"] else "-" for label in BASELINES),
            f"{float(row['seconds']):.0f}",
        )
        for row in rows
    ]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (head, ["---"] * len(head), *body))


def main() -> None:
    """Plan all cases, print a line for each, and write a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="time limit of each plan")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=(), help="names of models")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/plans.csv"))
    chosen = parser.parse_args()
    for name in {*chosen.only} - {case.model for case in CASES}:
        raise InputError(f"must be of {', '.join(case.model for case in CASES)}", key="--only", value=name)
    run = (chosen.seconds, chosen.workers, chosen.only, planner_version())
    with open_tables({chosen.output: COLUMNS}, run, extend=False):
        done = {row["model"] for row in lines_of(chosen.output)}
        todo = [case for case in CASES if case.model in {*(chosen.only or (case.model,))} - done]
        found = ([row_of(case, chosen.seconds, chosen.workers)] for case in todo)
        for _ in append(chosen.output, COLUMNS, found):
            print(lines_of(chosen.output)[-1], flush=True)
        rows = lines_of(chosen.output)
    for label in BASELINES:
        ratios = [float(row[f"over {label}"]) for row in rows if row[f"over {label}"]]
        print(
            f"{label}: mean speed-up {geometric_mean(ratios):.3f} over {len(ratios)} models", file=sys.stderr
        )
    print(page_table(rows))


if __name__ == "__main__":
    run_script(main)
