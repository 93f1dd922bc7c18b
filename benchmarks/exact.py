"""Compare exact solvers on a set of instances: the time until the optimum is proven, and the gap over time.

``python benchmarks/exact.py`` runs every solver on a fixed set of instances. Each solve has a process of its
own. A solve starts from the best heuristic's schedule, or without a warm start, that is, from a schedule that
runs one microbatch after another. A row goes to ``results/exact.csv`` whenever a solve ends, so that the same
command continues a run that was interrupted. The table and the figure are made from these rows.

``--set goals`` has instances whose optimum is to be proven within a given time (``results/exact_goals.csv``);
on them only the methods cpsat and best run, and only from the best heuristic's schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import click
from growing_table import run_script

from tightpipe import Instance, Memory
from tightpipe.base.files import write_text
from tightpipe.cli.sweeping import fill_table
from tightpipe.drawing import draw_gap_over_time
from tightpipe.experiments.experiment import Entry, Experiment, Problem, conditions, usual_hard_limit
from tightpipe.experiments.figure_data import anytime_points
from tightpipe.experiments.grid import combine
from tightpipe.experiments.study import Files, files_beside
from tightpipe.experiments.task import Row, Task
from tightpipe.params.budget import Allowance

SOLVERS = {
    "CP-SAT lattice": "cpsat",
    "CP-SAT plain": "cpsat:plain",
    "MILP": "milp",
    "best": "best",
}
"""The method behind each name in the tables."""
STARTS = ("none", "best")
_FORMULA = " (f)"
"""What marks a proof in which the bound is that of a formula, and not one that the solver has found."""


def _instance(placement: str, p: int, n: int, times: Sequence[int], memory: Memory) -> Instance:
    f, b, w, comm = times
    sizes: dict[str, Any] = {"devices": p, "microbatches": n, "placement": placement, "memory": memory}
    return Instance.uniform(**sizes, forward=f, backward=b, weight=w, comm=comm)


def _linear(p: int, n: int, times: Sequence[int], limit: int) -> Instance:
    return _instance("linear", p, n, times, Memory(2, -1, -1, limit))


def _v(p: int, n: int, times: Sequence[int]) -> Instance:
    return _instance("v", p, n, times, Memory(2, -1, -1, 4 * p))


def _paper(p: int, n: int) -> Instance:
    """Return an instance with the proportions of the published settings and memory for 2p activations."""
    return _instance("v", p, n, (3, 3, 2, 0), Memory(74, -42, -32, 74 * 2 * p))


INSTANCES = {
    "linear 2x4 (10,10,10,0)": _linear(2, 4, (10, 10, 10, 0), 8),
    "linear 2x4 (10,12,8,1)": _linear(2, 4, (10, 12, 8, 1), 4),
    "linear 3x6 (10,12,8,1)": _linear(3, 6, (10, 12, 8, 1), 6),
    "linear 4x4 (10,12,8,1)": _linear(4, 4, (10, 12, 8, 1), 8),
    "v 3x6 (10,12,8,1)": _v(3, 6, (10, 12, 8, 1)),
    "v 4x8 (10,12,8,1)": _v(4, 8, (10, 12, 8, 1)),
    "v 4x8 (8,14,8,2)": _v(4, 8, (8, 14, 8, 2)),
    "v 4x8 (10,20,5,1)": _v(4, 8, (10, 20, 5, 1)),
    "v 5x10 (3,3,2,0)": _paper(5, 10),
    "v 6x18 (3,3,2,0)": _paper(6, 18),
    "v 8x24 (3,3,2,0)": _paper(8, 24),
}
_LONG = 120.0
GOALS = {
    "v 3x6 (10,12,8,1)": 1.3,
    "v 4x8 (10,12,8,1)": 5.6,
    "v 4x8 (8,14,8,2)": 7.7,
    "v 4x8 (10,20,5,1)": 6.2,
    **dict.fromkeys([f"v {size} (3,3,2,0)" for size in ("6x18", "8x24", "12x24", "12x36")], _LONG),
}
"""Seconds in which an exact solver is to prove the optimum on two cores.

A goal is the time that a prototype of this project took, or else `_LONG`.
"""
_SEEDS = 5  # per instance with a prototype's time, because the times of proofs with two threads differ widely
_LARGER = {f"v {p}x{n} (3,3,2,0)": _paper(p, n) for p, n in ((12, 24), (12, 36))}
ALL = INSTANCES | _LARGER
SETS = {"fixed": list(INSTANCES), "goals": list(GOALS)}


def _name(row: Row) -> str:
    return next(name for name, method in SOLVERS.items() if method == row.method)


def tasks_of(instances: str, allowance: Allowance) -> list[Task]:
    """Return the solves of a set in the sequence in which they are run."""
    return [
        task
        for name in SETS[instances]
        for grid in _grids(instances, name, allowance)
        for task in combine(grid)
    ]


def _grids(instances: str, name: str, allowance: Allowance) -> Iterator[Experiment]:
    """Yield grids of solves of one instance; the method best only starts from the best heuristic."""
    if instances == "fixed":
        exact = tuple(method for method in SOLVERS.values() if method != "best")
        yield _grid(name, exact, STARTS, (allowance.seed,), allowance)
        yield _grid(name, ("best",), ("best",), (allowance.seed,), allowance)
        return
    count = _SEEDS if instances == "goals" and GOALS[name] < _LONG else 1
    seeds = tuple(range(allowance.seed, allowance.seed + count))
    yield _grid(name, ("cpsat", "best"), ("best",), seeds, allowance)


def _grid(
    name: str, methods: tuple[str, ...], starts: tuple[str, ...], seeds: tuple[int, ...], allowance: Allowance
) -> Experiment:
    instance = ALL[name]
    return Experiment(
        problems=(Problem(name, instance),),
        methods=tuple(map(Entry, methods)),
        warm_starts=starts,
        **conditions(allowance) | {"seeds": seeds},
    )


def markdown(instances: str, rows: Sequence[Row]) -> str:
    """Return the table of a set in Markdown, with the conditions under which it was measured."""
    lines, meaning = _TABLES[instances](rows)
    table = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*table, "", meaning, "", _conditions(rows), ""])


Lines = tuple[list[list[str]], str]
"""The lines of a table, of which the first two are its head, and a sentence that explains them."""


def _fixed_table(rows: Sequence[Row]) -> Lines:
    """Return the table with a line for each instance and a column for each method.

    A cell has the outcome of the solve from each start.
    """
    methods = _methods(rows)
    lines = [["instance", *methods], ["---"] * (1 + len(methods))]
    lines += [
        [name, *(" / ".join(map(_outcome, mine[method])) or "-" for method in methods)]
        for name, mine in _by(rows, methods)
    ]
    lines.append(["proven", *(_proven(rows, method) for method in methods)])
    return lines, (
        "CPU seconds to the proof of the optimum, or the gap = (cost - bound) / cost when time was up. Where "
        "two values stand: from microbatch after microbatch / from the best heuristic, as where one stands. "
        f"{_FORMULA.strip()}: the bound is a formula's, and the solver has at most found the schedule."
    )


def _goals_table(rows: Sequence[Row]) -> Lines:
    """Return the table with a line for each instance, its goal in seconds, and a column for each method."""
    methods = _methods(rows)
    lines = [["instance", "optimum", "to prove within", *methods], ["---"] * (3 + len(methods))]
    for name, mine in _by(rows, methods):
        optimum = {str(row.bubble) for row in rows if row.problem == name and row.status == "optimal"}
        times = (_median(mine[method]) for method in methods)
        lines.append([name, ", ".join(optimum) or "open", f"{GOALS[name]:g} s", *times])
    return lines, (
        "Optimum: the bubble, cost - work. Times are wall-clock seconds to its proof, from the best "
        "heuristic, beside those to keep: the prototype's, measured on another machine of two cores, else a "
        f"limit. Where a range stands: the median of {_SEEDS} seeds, the least and the most. "
        f"{_FORMULA.strip()}: the bound is a formula's, and a heuristic's schedule meets it."
    )


_TABLES = {"fixed": _fixed_table, "goals": _goals_table}


def _methods(rows: Sequence[Row]) -> list[str]:
    return [method for method in SOLVERS if any(_name(row) == method for row in rows)]


def _by(rows: Sequence[Row], methods: Sequence[str]) -> list[tuple[str, dict[str, list[Row]]]]:
    """Return, for each problem, a pair: its name, and its rows by method."""
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        mine = groups.setdefault(row.problem, {method: [] for method in methods})
        mine[_name(row)].append(row)
    return list(groups.items())


def _outcome(row: Row, wall: bool = False) -> str:
    if row.status == "optimal":
        return f"{row.seconds if wall else row.cpu_seconds:.1f} s{_FORMULA * _by_formula(row)}"
    return f"{row.gap:.2%}" if row.gap else str(row.status)


def _by_formula(row: Row) -> bool:
    """Return whether the schedule meets the bound of a formula, so that the solver proved nothing."""
    return row.status == "optimal" and row.proof == "formula"


def _median(rows: Sequence[Row]) -> str:
    """Return the median time to the proof and, for several solves, the range; unproven solves come last."""
    # A row has no seconds if its process failed.
    times = sorted(rows, key=lambda row: (row.status != "optimal", row.seconds or inf))
    median = _outcome(times[len(times) // 2], wall=True)
    if len(times) == 1:
        return median
    return f"{median} ({_outcome(times[0], wall=True)} to {_outcome(times[-1], wall=True)})"


def _proven(rows: Sequence[Row], method: str) -> str:
    by_start = [[row for row in rows if (_name(row), row.warm_start) == (method, start)] for start in STARTS]
    return " / ".join(
        f"{sum(row.status == 'optimal' and not _by_formula(row) for row in mine)} of {len(mine)}, "
        f"{sum(map(_by_formula, mine))}{_FORMULA}"
        for mine in by_start
        if mine
    )


def _conditions(rows: Sequence[Row]) -> str:
    columns = ("cores", "time_limit", "threads", "seed", "engine", "ortools_version")
    cpus, limit, workers, seed, own, ortools = (
        ", ".join(dict.fromkeys(_said(getattr(row, column)) for row in rows)) for column in columns
    )
    days = sorted({row.finished_at[:10] for row in rows if row.finished_at})
    return (
        f"Measured {', '.join(days)} on {cpus} CPU cores: time limit {limit} s per solve, {workers} workers, "
        f"seed {seed}, tightpipe {own}, OR-Tools {ortools}."
    )


def _said(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _report(instances: str, rows: Sequence[Row], files: Files) -> None:
    text = markdown(instances, rows)
    write_text(files.page, text)
    if instances == "fixed":
        named = [replace(row, name=_name(row)) for row in rows]
        draw_gap_over_time(anytime_points(named), f"{files.figure}.png")
    print(text, end="")


@click.command()
@click.option("--set", "instances", type=click.Choice(list(SETS)), default="fixed", show_default=True)
@click.option("--time-limit", type=float, default=60.0, show_default=True, help="Seconds per solve.")
@click.option("--workers", type=int, default=2, show_default=True, help="Threads of each solve.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random choices.")
@click.option("--at-once", type=int, default=1, show_default=True, help="Solves run at once.")
@click.option("--extend", is_flag=True, help="Keep all solves that are done.")
@click.option("-o", "--output", help="CSV to write.  [default: results/exact.csv or exact_goals.csv]")
def main(
    instances: str,
    time_limit: float,
    workers: int,
    seed: int,
    at_once: int,
    extend: bool,
    output: str | None,
) -> None:
    """Compare exact solvers; the same command continues a run that was interrupted."""
    path = output or f"results/exact{'' if instances == 'fixed' else '_' + instances}.csv"
    tasks, files = tasks_of(instances, Allowance(time_limit, workers, seed)), files_beside(Path(path))
    fill_table(
        tasks,
        files,
        usual_hard_limit(time_limit),
        at_once=at_once,
        report=lambda rows: _report(instances, rows, files),
        extend=extend,
    )


if __name__ == "__main__":
    run_script(partial(main, standalone_mode=False))
