"""Compare the method ``best`` with each of its parts at equal time and threads.

``python benchmarks/parts.py`` runs ``best`` and the methods that it consists of, each from the cheapest
schedule of all heuristics, on instances whose stages cost unlike amounts. The table says how much more
``best`` costs than the cheapest part, and which part that is. ``best`` proves bounds in the same time, so
where the search for schedules has not converged, a part can be ahead. A row goes to the CSV whenever a solve
ends, and the same command continues a run that was interrupted. ``--set all`` adds the realistic suite.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from growing_table import run_script

from tightpipe import Instance, Memory
from tightpipe.base.files import write_text
from tightpipe.cli.sweeping import fill_table
from tightpipe.experiments.experiment import (
    Entry,
    Experiment,
    Problem,
    choose_names,
    conditions,
    usual_hard_limit,
)
from tightpipe.experiments.grid import combine
from tightpipe.experiments.study import Files, files_beside
from tightpipe.experiments.task import Row, Task
from tightpipe.params.budget import Allowance
from tightpipe.settings import load_realistic
from tightpipe.settings.instances import relative_lengths, with_lengths
from tightpipe.solver.blocks.block_search import out_of_reach

PARTS = ("improve", "block", "cpsat")
"""The methods that `best` consists of."""
LOSS = 0.001
"""The share of a part's cost by which `best` may cost more, because annealing differs from run to run."""


def uneven(seed: int, devices: int, microbatches: int, held: float, **entries: Any) -> Instance:
    """Return an instance whose stages differ at random by up to a quarter, in the placement V.

    B takes 0.9 to 1.8 and W 0.5 to 1 times as long as F, messages up to a tenth. `held` is the memory limit
    in activations of a stage per device; 2 is the memory of 1F1B. `entries` are those of `Instance.uniform`.
    """
    rng = random.Random(seed)
    stages = [rng.uniform(0.75, 1.25) for _ in range(2 * devices)]
    means = (1000.0, 1000 * rng.uniform(0.9, 1.8), 1000 * rng.uniform(0.5, 1.0))
    forward, backward, weight = ([round(mean * stage) for stage in stages] for mean in means)
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        **{"forward": forward, "backward": backward, "weight": weight, "comm": rng.randint(0, 100)} | entries,
        memory=Memory(74, -42, -32, round(74 * held * devices)),
    )


def _fused(instance: Instance) -> Instance:
    """Return the instance with fused backwards that take a tenth less than B and W."""
    costs: Any = instance.costs
    fused = [9 * (b + w) // 10 for b, w in zip(costs.backward, costs.weight, strict=True)]
    return replace(instance, costs=replace(costs, fused=fused))


def _of_lengths(instance: Instance) -> Instance:
    """Return the instance with microbatches of log-normal lengths."""
    return with_lengths(instance, relative_lengths("lognormal", 0.4, instance.microbatches))


UNEVEN = {
    "uneven-8x24": uneven(1, 8, 24, 2),
    "uneven-8x24-1p": uneven(2, 8, 24, 1),
    "uneven-8x24-fused": _fused(uneven(3, 8, 24, 2)),
    "uneven-8x24-lengths": _of_lengths(uneven(4, 8, 24, 2)),
    "uneven-16x48": uneven(5, 16, 48, 2),
    "uneven-16x48-1p": uneven(6, 16, 48, 1),
    "uneven-16x48-step": uneven(7, 16, 48, 1.5, objective="step"),
    "uneven-24x72-1p": uneven(8, 24, 72, 1),
}
SUITE = {name: entry.instance() for name, entry in load_realistic().items()}
SETS = {"uneven": [*UNEVEN], "all": [*UNEVEN, *SUITE]}


def tasks_of(names: Sequence[str], allowance: Allowance) -> list[Task]:
    """Return the solves of the named instances in the sequence in which they are run.

    `block` is left out where it refuses the instance, as `best` then does without it, too.
    """
    known, tasks = UNEVEN | SUITE, list[Task]()
    for name in names:
        refused = out_of_reach(known[name], allowance.params.blocks)
        methods = tuple(Entry(one) for one in ("best", *PARTS) if not (one == "block" and refused))
        experiment = Experiment(
            problems=(Problem(name, known[name]),), methods=methods, **conditions(allowance)
        )
        tasks += combine(experiment)
    return tasks


def markdown(rows: Sequence[Row]) -> str:
    """Return the table in Markdown, with what `best` loses and the conditions of the solves."""
    by_name: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_name.setdefault(row.problem, {})[row.method] = row
    head = ["instance", "best", *PARTS, "bound", "gap of best, %", "cheapest part", "best above it, %"]
    lines = [head, ["---"] * len(head)]
    losses = []
    for name, mine in by_name.items():
        costs = {method: row.cost for method, row in mine.items() if row.cost is not None}
        parts = {method: costs[method] for method in PARTS if method in costs}
        if "best" not in costs or not parts:
            continue
        cheapest = min(parts, key=lambda method: parts[method])
        losses.append(costs["best"] / parts[cheapest] - 1)
        ours = [_said(mine.get(method)) for method in ("best", *PARTS)]
        bound = max(row.bound or 0 for row in mine.values())
        gap = 100 * (1 - bound / costs["best"])
        equal = "-" if parts[cheapest] == costs["best"] else cheapest
        lines.append([name, *ours, f"{bound}", f"{gap:.2f}", equal, f"{100 * losses[-1]:+.2f}"])
    worse, better = (sum(sign * loss > LOSS for loss in losses) for sign in (1, -1))
    said = (
        f"Of {len(losses)} instances, best costs over {LOSS:.1%} more than its cheapest part on {worse}, and "
        f"over {LOSS:.1%} less on {better}; at most {max(losses, default=0):+.2%}, on average "
        f"{sum(losses) / max(1, len(losses)):+.2%}. A * marks what the method itself proves to be optimal."
    )
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", said, "", _conditions(rows), ""])


def _said(row: Row | None) -> str:
    if row is None or row.cost is None:
        return "-"
    return f"{row.cost}{'*' if row.status == 'optimal' else ''}"


def _conditions(rows: Sequence[Row]) -> str:
    columns = ("cores", "time_limit", "threads", "seed", "engine", "ortools_version")
    each = [", ".join(dict.fromkeys(f"{getattr(row, column)}" for row in rows)) for column in columns]
    cores, limit, threads, seed, own, ortools = each
    return (
        f"Measured on {cores} CPU cores: time limit {limit} s per solve, {threads} worker(s), seed {seed}, "
        f"tightpipe {own}, OR-Tools {ortools}."
    )


def _report(rows: Sequence[Row], files: Files) -> None:
    text = markdown(rows)
    write_text(files.page, text)
    print(text, end="")


@click.command()
@click.option("--set", "instances", type=click.Choice(list(SETS)), default="uneven", show_default=True)
@click.option("--only", help="Names of instances, with commas between them, in place of a set.")
@click.option("--time-limit", type=float, default=10.0, show_default=True, help="Seconds per solve.")
@click.option("--workers", type=int, default=1, show_default=True, help="Threads of each solve.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random choices.")
@click.option("--at-once", type=int, default=1, show_default=True, help="Solves run at once.")
@click.option("--extend", is_flag=True, help="Keep all solves that are done.")
@click.option("-o", "--output", default="results/parts.csv", show_default=True, help="CSV to write.")
def main(
    instances: str,
    only: str | None,
    time_limit: float,
    workers: int,
    seed: int,
    at_once: int,
    extend: bool,
    output: str,
) -> None:
    """Compare best with its parts; the same command continues a run that was interrupted."""
    names = SETS[instances] if only is None else choose_names(only, UNEVEN | SUITE)
    files = files_beside(Path(output))
    fill_table(
        tasks_of(names, Allowance(time_limit, workers, seed)),
        files,
        usual_hard_limit(time_limit),
        at_once=at_once,
        report=lambda rows: _report(rows, files),
        extend=extend,
    )


if __name__ == "__main__":
    run_script(partial(main, standalone_mode=False))
