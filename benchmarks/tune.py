"""Measure what each parameter of the searches is worth, by changing one at a time.

``python benchmarks/tune.py`` solves random instances with the default parameters and with each change of
`CHANGES`: all solves of the first instance, then all of the next, so that the table can be read at any time.
Solves are limited by effort on one thread, so that neither the machine nor what else it does counts. The
instances are none of those whose results docs/results.md shows. With many changes, some look better by
chance: so a change is confirmed with ``--only`` on instances that the first run has not seen (``--first``).
results/tuning.csv has a line for each solve, and results/tuning.md the table of docs/parameters.md; the same
command continues a run that was interrupted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import comb, sqrt
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

from growing_table import CONDITIONS, conditions, conditions_text, fill, open_tables, run_script

from tightpipe import Costs, Instance, Memory, Objective, Placement, Schedule, solve
from tightpipe.base.files import write_text
from tightpipe.base.tables import markdown_text
from tightpipe.model.metrics import limits_of_activations
from tightpipe.params.solve_params import params_from_dict
from tightpipe.registry.methods import find_method
from tightpipe.registry.starts import warm_starts
from tightpipe.terminal import show_table

TABLE = Path(__file__).parents[1] / "results" / "tuning.csv"
COLUMNS = (
    *("method", "instance", "parameter", "value", "seed", "effort", "cost", "bound", "seconds"),
    *CONDITIONS,
)
SHARES = {"improve": 1, "best": 2}
"""How many times the effort that is asked for each search has; heuristics end by themselves."""
_SMALL, _LARGE = 1200, 6000  # most operations of an instance

_Values = dict[str, tuple[Any, ...]]
CHANGES: dict[str, _Values] = {
    "improve": {
        "rules.share": (0.0, 0.5),
        "rules.generations": (1,),
        "anneal.rounds": ([1.0], [0.1, 0.9]),
        "anneal.cold": (0.003, 0.03),
        "anneal.warm": (0.002, 0.01),
        "anneal.cooling": (7.0, 60.0),
        "anneal.reach": (16,),
        "anneal.go_on": (0.8,),
        "anneal.far": (0.0, 0.3),
        "anneal.begins": (0.0,),
        "anneal.share_if_converged": (0.3, 1.0),
        "fold.share": (0.0,),
        "neighbourhoods.narrow": (0.0, 1.0),
    },
    "best": {
        "best.quick": (0.0,),
        "best.hope": (0.25, 0.75),
        "best.blocks": (0.0, 0.6),
        "best.quick_prefixes": (0.0,),
        "best.prefixes": (0.0,),
        "prefixes.little": (1 / 16,),
        "prefixes.failures": (1,),
        "sides.least": (0.3,),
        "windows.deep": (4,),
    },
    "list": {"list.retimed": (1,)},
    "due-date": {"due_date.retimed": (1,)},
    "v-adaptive": {
        "v_blocks.adaptive_work": (500_000,),
        "v_blocks.retimed": (1,),
        "v_blocks.short": (6,),
        "v_blocks.kept": (3,),
        "v_blocks.passes": (1,),
        "v_blocks.splits": (0,),
    },
    "modulo": {"modulo.halvings": (2, 10)},
}
"""The values that are tried, by method and parameter: about half and double the default, or nothing of it.

Left out is what these solves do not reach: the energetic bound, which needs a deadline, and beam searches,
which need equal W's on each device.
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """The solves of one method with one parameter changed; with no parameter, those with the defaults."""

    method: str
    parameter: str = ""
    value: str = ""  #: as JSON

    def params(self) -> dict[str, Any]:
        """Return what is changed."""
        return {self.parameter: json.loads(self.value)} if self.parameter else {}


def trials(only: Sequence[str] = (), placement: str = "v") -> list[Trial]:
    """Return the trials of the parameters whose names begin with one of `only`; of all if that is empty.

    The trial with the defaults comes first for each method. Methods that do not schedule the placement have
    no trial.
    """
    found = []
    for method, changes in CHANGES.items():
        if placement not in find_method(method).placements:
            continue
        asked = [key for key in changes if not only or key.startswith(tuple(only))]
        found += [Trial(method)] if asked else []
        found += [Trial(method, key, json.dumps(value)) for key in asked for value in changes[key]]
    return found


@lru_cache(maxsize=1)  # all trials of an instance follow one another
def study_instance(number: int) -> Instance:
    """Return the random instance of this number, which is the same in every run.

    It has 4 to 16 devices, stages with unequal costs, of which the last one may be slow, and room for one or
    two activations per device and stage. The objectives and the limits take turns. Instances from number 100
    on are large: there, annealing has few moves per operation.
    """
    rng = Random(f"tuning {number}")
    devices = rng.choice((4, 5, 6, 8, 8, 10, 12, 16))
    placement = Placement("v" if number % 4 else "loop", devices, 2)
    stages = placement.stages
    most = (_SMALL if number < 100 else _LARGE) // (3 * stages)
    microbatches = max(6, min(most, round(devices * rng.choice((1.5, 2, 3) if number < 100 else (4, 6, 8)))))
    forward = [round(1000 * rng.uniform(0.8, 1.2)) for _ in range(stages)]
    forward[-1] = round(forward[-1] * rng.choice((1, 1, 1.3, 1.8)))
    backward, weight = rng.uniform(0.9, 1.8), rng.uniform(0.3, 1.0)  # as shares of the forward's time
    costs = Costs(
        forward,
        [round(ticks * backward) for ticks in forward],
        [round(ticks * weight) for ticks in forward],
        round(1000 * rng.choice((0, 0.02, 0.1, 0.3))),
    )
    kept = rng.randint(2, 8)  # of the 10 units of an activation, those that a pending W holds
    objective = Objective.MAKESPAN if number // 2 % 2 else Objective.DEVICE_SPAN
    free = Instance(placement, microbatches, costs, Memory(10, kept - 10, -kept, None), objective)
    limit = limits_of_activations(free, (1 + number % 2) * devices)
    return replace(free, memory=Memory(10, kept - 10, -kept, limit))


@lru_cache(maxsize=1)
def _start(number: int) -> Schedule:
    return warm_starts(study_instance(number))[0][1]


def measured(effort: float, number: int, trial: Trial, seed: int) -> dict[str, object]:
    """Return the line of a solve of the instance of this number."""
    share, options = SHARES.get(trial.method), dict[str, Any]()
    if share:
        options = {"effort": share * effort, "warm_start": _start(number)}
    params = params_from_dict(trial.params())
    result = solve(study_instance(number), trial.method, workers=1, seed=seed, params=params, **options)
    return {
        **{"method": trial.method, "instance": number, "parameter": trial.parameter, "value": trial.value},
        **{"seed": seed, "effort": options.get("effort"), "cost": result.cost, "bound": result.bound},
        "seconds": f"{result.seconds:.2f}",
        **conditions(),
    }


def _key(line: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(line[name]) for name in ("method", "instance", "parameter", "value", "seed"))


def sign_test(better: int, worse: int) -> float:
    """Return how probable so unequal numbers are where a change is as often better as worse, two-sided."""
    count, few = better + worse, min(better, worse)
    return min(1.0, 2 * sum(comb(count, k) for k in range(few + 1)) / 2**count)


def worth(lines: Sequence[dict[str, str]]) -> Iterator[dict[str, object]]:
    """Yield what each change does beside the defaults, over the instances that both have solved.

    Heuristics and `improve` are compared by their costs, in per cent of the default's. The method `best` is
    compared by its gaps, in points. A change below 0 is better.
    """
    found = {_key(line): _loss(line) for line in lines}
    for trial in trials():
        pairs = [
            (loss, found.get((method, instance, "", "", seed)))
            for (method, instance, parameter, value, seed), loss in found.items()
            if (method, parameter, value) == (trial.method, trial.parameter, trial.value) and parameter
        ]
        by_gap = trial.method == "best"
        changes = [
            100 * (loss - usual) / (1 if by_gap else usual)
            for loss, usual in pairs
            if loss is not None and usual is not None
        ]
        if changes:
            better, worse = sum(c < 0 for c in changes), sum(c > 0 for c in changes)
            yield {
                **{"method": trial.method, "parameter": trial.parameter, "value": trial.value},
                **{"solves": len(changes), "mean": mean(changes), "error": _error(changes)},
                **{"best": min(changes), "worst": max(changes), "better": better, "worse": worse},
                "p": sign_test(better, worse),
            }


def _loss(line: dict[str, str]) -> float | None:
    """Return the gap of a line of `best`, and the cost of another line; None if there is no schedule."""
    if not line["cost"]:
        return None
    return 1 - int(line["bound"]) / int(line["cost"]) if line["method"] == "best" else float(line["cost"])


def _error(changes: Sequence[float]) -> float:
    """Return half of the width of the 95 % confidence interval of the mean."""
    return 1.96 * stdev(changes) / sqrt(len(changes)) if len(changes) > 1 else 0.0


def main() -> None:
    """Solve what the table lacks, and print what the changes are worth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--instances", type=int, default=6, help="number of instances")
    parser.add_argument("--first", type=int, default=0, help="number of the first instance")
    parser.add_argument("--seed", type=int, default=0, help="seed of the solves")
    parser.add_argument("--effort", type=float, default=1.5, help="seconds of improve; best has twice")
    parser.add_argument("--only", default="", help="first letters of parameters, e.g. anneal.,beams.waiting")
    parser.add_argument("--processes", type=int, default=2, help="solves that run at once")
    parser.add_argument("--extend", action="store_true", help="keep the lines of other runs")
    parser.add_argument("-o", "--output", type=Path, default=TABLE)
    asked = parser.parse_args()
    only = [name for name in asked.only.split(",") if name]
    run = (asked.instances, asked.first, asked.seed, asked.only, asked.effort)
    with open_tables({asked.output: COLUMNS}, run, asked.extend):
        solves = [
            (number, trial, asked.seed)
            for number in range(asked.first, asked.first + asked.instances)
            for trial in trials(only, study_instance(number).placement.name)
        ]
        line_of = partial(_line_of, asked.effort)
        lines = fill(asked.output, COLUMNS, solves, _solve_of, line_of, asked.processes)
    head, *rows = table(lines)
    write_text(asked.output.with_suffix(".md"), f"{page(lines)}\n")
    show_table(head, rows)


def _solve_of(line: dict[str, str]) -> tuple[int, Trial, int]:
    return int(line["instance"]), Trial(line["method"], line["parameter"], line["value"]), int(line["seed"])


def _line_of(effort: float, place: tuple[int, Trial, int]) -> dict[str, object]:
    return measured(effort, *place)


def table(lines: Sequence[dict[str, str]]) -> list[list[str]]:
    """Return what each change is worth as the rows of a table, below its head."""
    head = ["method", "parameter", "value", "solves", "mean", "±", "best", "worst", "better", "worse", "p"]
    return [head, *([_text(value) for value in found.values()] for found in worth(lines))]


def page(lines: Sequence[dict[str, str]]) -> str:
    """Return the table in Markdown, without the changes that make no difference, and who made it."""
    head, *rows = table(lines)
    best, worst = head.index("best"), head.index("worst")
    rows = [row for row in rows if {row[best], row[worst]} != {"0.00"}]
    return f"{markdown_text(head, rows, head)}\n\n{conditions_text(lines)}, one thread, limited by effort."


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    run_script(main)
