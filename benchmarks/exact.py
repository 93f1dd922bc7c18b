"""Time to proof, and gap over time, of exact solvers on a set of instances, side by side.

Run ``python benchmarks/exact.py``: every solver on a fixed set. Each solve has a process of its own and
starts from nothing (microbatch after microbatch) or from the best heuristic. Rows go to
``results/exact.csv`` as solves end, so that an interrupted run goes on where it stopped; table and figure
are made from them. Two other sets take CP-SAT and best from the best heuristic alone: ``--set goals``,
instances to prove within a given time (``results/exact_goals.csv``), and ``--set random``, random instances
of up to 4 devices and 8 microbatches (``results/exact_random.csv``).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import click

from tightpipe import InputError, Instance, Memory, Placement
from tightpipe.core.allowance import Allowance
from tightpipe.core.budget import UNLIMITED
from tightpipe.core.files import write_text
from tightpipe.core.interruption import raise_again
from tightpipe.core.result import LogEntry, Result
from tightpipe.drawing import draw_gap_over_time
from tightpipe.experiments.row_store import Row, RowStore
from tightpipe.experiments.solve_columns import allowance_columns, result_columns
from tightpipe.solver.best import solve_best
from tightpipe.solver.cpsat import solve_cpsat
from tightpipe.solver.milp import solve_milp
from tightpipe.solving.starts import warm_starts
from tightpipe.terminal.progress_bar import progress_bar

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from small_instances import random_instance

SOLVERS: dict[str, Callable[..., Result]] = {
    "CP-SAT lattice": solve_cpsat,
    "CP-SAT plain": partial(solve_cpsat, formulation="plain"),
    "MILP HiGHS": partial(solve_milp, backend="highs"),
    "MILP CBC": partial(solve_milp, backend="cbc"),
    "best": solve_best,
}
STARTS = ("none", "best")
FAILED = "failed"  # status of a row whose process died; it is run again by the next run
_VERSIONS = ("tightpipe_version", "ortools_version", "highspy_version", "pulp_version")
_OPTIONS = ("workers", "seed", "time_limit", *_VERSIONS)
KEY = ("instance", "method", "start", *_OPTIONS)
COLUMNS = (
    *("instance", "placement", "method", "start", "status", "cost", "work", "bubble", "bound", "proof"),
    *("gap", "seconds", "cpu_seconds", *_OPTIONS, "host_cpus", "finished_at", "reason", "trace"),
)
_LATE = 60.0  # seconds over its time limit after which a process is killed


def _instance(placement: str, p: int, n: int, times: Sequence[int], memory: Memory) -> Instance:
    f, b, w, comm = times
    sizes: dict[str, Any] = {"devices": p, "microbatches": n, "placement": placement, "memory": memory}
    return Instance.uniform(**sizes, forward=f, backward=b, weight=w, comm=comm)


def _linear(p: int, n: int, times: Sequence[int], limit: int) -> Instance:
    return _instance("linear", p, n, times, Memory(2, -1, -1, limit))


def _v(p: int, n: int, times: Sequence[int]) -> Instance:
    return _instance("v", p, n, times, Memory(2, -1, -1, 4 * p))


def _paper(p: int, n: int) -> Instance:
    """Return the proportions of the published settings, at 2p activations."""
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
"""Seconds in which an exact solver here must prove, on two cores: those of its prototype, else a limit."""
_SEEDS = 5  # of the prototype's instances: two threads take 6 or 11 seconds for the same proof
_LARGER = {f"v {p}x{n} (3,3,2,0)": _paper(p, n) for p, n in ((12, 24), (12, 36))}
_CHUNKS = {"linear": 1, "v": 2, "loop": 2, "wave": 2}
RANDOM = {
    f"{name} {p}x{n} seed {seed}": random_instance(random.Random(seed), Placement(name, p, chunks), n)
    for p, n in ((2, 4), (3, 6), (4, 4), (4, 8))
    for seed in range(10)
    for name, chunks in _CHUNKS.items()
}
ALL = INSTANCES | _LARGER | RANDOM
SETS = {"fixed": list(INSTANCES), "goals": list(GOALS), "random": list(RANDOM)}


@dataclass(frozen=True, slots=True)
class Task:
    """One row to compute."""

    instance: str
    method: str
    start: str
    allowance: Allowance

    def key_columns(self) -> Mapping[str, object]:
        """Return what makes two rows the same experiment."""
        return {
            "instance": self.instance,
            "method": self.method,
            "start": self.start,
            "highspy_version": version("highspy"),
            "pulp_version": version("pulp"),
            **allowance_columns(self.allowance, searches=True),
        }

    def row(self) -> dict[str, object]:
        """Solve in a process of its own; a process that fails is a row too."""
        placement = ALL[self.instance].placement.name
        unknown = dict.fromkeys(COLUMNS) | {"placement": placement, "host_cpus": os.cpu_count()}
        return unknown | self.key_columns() | self._answer()

    def _answer(self) -> dict[str, object]:
        allowed = self.allowance
        limits = [str(v) for v in (allowed.time_limit, allowed.workers, allowed.seed)]
        command = [sys.executable, __file__, "--alone", self.instance, self.method, self.start, *limits]
        try:
            most = 2 * (allowed.time_limit or 0) + _LATE
            done = subprocess.run(command, capture_output=True, text=True, timeout=most)
        except subprocess.TimeoutExpired as error:
            return {"status": FAILED, "reason": f"killed after {error.timeout:g} s"}
        if done.returncode:
            why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            return {"status": FAILED, "reason": why}
        answer: dict[str, object] = json.loads(done.stdout)
        return answer


def _solve_alone(name: str, method: str, start: str, limit: str, workers: str, seed: str) -> dict[str, Any]:
    """Solve in this process and return the columns of what came of it.

    The first call of a compiled loop takes it from a cache; a tiny solve comes first, and is not counted.
    """
    instance, solver = ALL[name], SOLVERS[method]
    tiny = _linear(2, 2, (2, 3, 1, 1), 8)
    solver(tiny, UNLIMITED.within(5.0), warm_starts(tiny)[-1][1])
    warm_start = warm_starts(instance)[0][1] if start == "best" else None
    before = sum(os.times()[:4])
    try:
        budget = Allowance(float(limit), int(workers), int(seed)).begin()
        result = solver(instance, budget, warm_start)
    except InputError as error:
        return {"status": "refused", "reason": str(error)}
    found = {column: value for column, value in result_columns(result).items() if column in COLUMNS}
    cpu = f"{sum(os.times()[:4]) - before:.3f}"
    trace = [_seconds_and_gap(entry) for entry in result.log]
    return found | {"cpu_seconds": cpu, "reason": result.reason, "trace": json.dumps(trace)}


def _seconds_and_gap(entry: LogEntry) -> tuple[float, float]:
    assert entry.cost is not None
    assert entry.bound is not None
    return round(entry.seconds, 3), round((entry.cost - entry.bound) / entry.cost, 6)


def plan(instances: str, allowance: Allowance) -> list[Task]:
    """Return the rows in the order in which they are computed; the method best has a start of its own."""
    if instances != "fixed":
        return [
            Task(name, method, "best", replace(allowance, seed=allowance.seed + k))
            for name in SETS[instances]
            for method in ("CP-SAT lattice", "best")
            for k in range(_SEEDS if instances == "goals" and GOALS[name] < _LONG else 1)
        ]
    return [
        Task(name, method, start, allowance)
        for name in SETS[instances]
        for method in SOLVERS
        for start in (STARTS if method != "best" else ("best",))
    ]


def markdown(instances: str, rows: Sequence[Row]) -> str:
    """Return the table of a set, and under which conditions it was measured."""
    lines, meaning = _TABLES[instances](rows)
    table = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*table, "", meaning, "", _conditions(rows), ""])


Table = tuple[list[list[str]], str]
"""Lines of cells, the first two of them the head, and what they mean."""


def _fixed_table(rows: Sequence[Row]) -> Table:
    """Return instance x method, from nothing and from the best heuristic."""
    methods = _methods(rows)
    lines = [["instance", *methods], ["---"] * (1 + len(methods))]
    lines += [
        [name, *(" / ".join(map(_outcome, mine[method])) or "-" for method in methods)]
        for name, mine in _by(rows, "instance", methods)
    ]
    lines.append(["proven", *(_proven(rows, method) for method in methods)])
    return lines, (
        "CPU seconds to the proof of the optimum, or the gap = (cost - bound) / cost when time was up. Where "
        "two values stand: from microbatch after microbatch / from the best heuristic, as where one stands."
    )


def _goals_table(rows: Sequence[Row]) -> Table:
    """Return instance x method beside the time to keep."""
    methods = _methods(rows)
    lines = [["instance", "optimum", "to prove within", *methods], ["---"] * (3 + len(methods))]
    for name, mine in _by(rows, "instance", methods):
        optimum = {row["bubble"] for row in rows if row["instance"] == name and row["status"] == "optimal"}
        times = (_median(mine[method]) for method in methods)
        lines.append([name, ", ".join(optimum) or "open", f"{GOALS[name]:g} s", *times])
    return lines, (
        "Optimum: the bubble, cost - work. Times are wall-clock seconds to its proof, from the best "
        "heuristic, beside those to keep: the prototype's, measured on another machine of two cores, else a "
        f"limit. Where a range stands: the median of {_SEEDS} seeds, the least and the most."
    )


def _random_table(rows: Sequence[Row]) -> Table:
    """Return size and placement x method: how many are proven and what the longest proof took."""
    methods = _methods(rows)
    kinds = [{**row, "kind": _kind(row["instance"])} for row in rows]
    lines = [["instances", *methods], ["---"] * (1 + len(methods))]
    lines += [
        [kind, *(_longest(mine[method]) for method in methods)] for kind, mine in _by(kinds, "kind", methods)
    ]
    lines.append(["proven", *(_proven(rows, method) for method in methods)])
    left = [f"{r['instance']} ({r['method']}, {_outcome(r)})" for r in rows if r["status"] != "optimal"]
    return lines, (
        "Proven of those drawn, and the most CPU seconds that a proof of the optimum took, from the best "
        f"heuristic. Left open: {', '.join(left) or 'none'}."
    )


def _kind(name: str) -> str:
    busy = ", busy links" if ALL[name].costs.link_occupancy else ""
    return name.partition(" seed")[0] + busy


_TABLES = {"fixed": _fixed_table, "goals": _goals_table, "random": _random_table}


def _methods(rows: Sequence[Row]) -> list[str]:
    return [method for method in SOLVERS if any(row["method"] == method for row in rows)]


def _by(rows: Sequence[Row], column: str, methods: Sequence[str]) -> list[tuple[str, dict[str, list[Row]]]]:
    """Return the rows of each value of a column, by method."""
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        mine = groups.setdefault(row[column], {method: [] for method in methods})
        mine[row["method"]].append(row)
    return list(groups.items())


def _outcome(row: Row, seconds: str = "cpu_seconds") -> str:
    if row["status"] == "optimal":
        return f"{float(row[seconds]):.1f} s"
    return f"{float(row['gap']):.2%}" if row["gap"] else row["status"]


def _median(rows: Sequence[Row]) -> str:
    """Return the median time to proof, an open one being the longest, and the range of several."""
    # a process that failed tells no seconds
    times = sorted(rows, key=lambda row: (row["status"] != "optimal", float(row["seconds"] or inf)))
    median = _outcome(times[len(times) // 2], "seconds")
    if len(times) == 1:
        return median
    return f"{median} ({_outcome(times[0], 'seconds')} to {_outcome(times[-1], 'seconds')})"


def _longest(rows: Sequence[Row]) -> str:
    proven = [float(row["cpu_seconds"]) for row in rows if row["status"] == "optimal"]
    return f"{len(proven)} of {len(rows)}, {max(proven, default=0.0):.1f} s"


def _proven(rows: Sequence[Row], method: str) -> str:
    by_start = [[row for row in rows if (row["method"], row["start"]) == (method, start)] for start in STARTS]
    return " / ".join(
        f"{sum(row['status'] == 'optimal' for row in mine)} of {len(mine)}" for mine in by_start if mine
    )


def _conditions(rows: Sequence[Row]) -> str:
    columns = ("host_cpus", "time_limit", "workers", "seed", *_VERSIONS)
    cpus, limit, workers, seed, own, ortools, highspy, pulp = (
        ", ".join(dict.fromkeys(row[column] for row in rows)) for column in columns
    )
    days = sorted({row["finished_at"][:10] for row in rows if row["finished_at"]})
    return (
        f"Measured {', '.join(days)} on {cpus} CPU cores: time limit {limit} s per solve, {workers} workers "
        f"(CBC: 1), seed {seed}, tightpipe {own}, OR-Tools {ortools}, highspy {highspy}, PuLP {pulp}."
    )


def _points(row: Row) -> list[dict[str, Any]]:
    """Return the gap of a solve over time, for the figure; its last point is where it ended."""
    line = {"panel": row["instance"], "method": row["method"], "start": row["start"]}
    trace = json.loads(row["trace"] or "[]")
    if trace:
        trace.append([float(row["seconds"]), float(row["gap"])])
    return [line | {"seconds": seconds, "gap": gap} for seconds, gap in trace]


def _run(tasks: Sequence[Task], store: RowStore) -> None:
    """Compute the rows one after another; a solve that Ctrl-C ended is no row."""
    longest = [task.allowance.time_limit or 0.0 for task in tasks]
    with progress_bar(len(tasks), sum(longest)) as bar:
        for done, task in enumerate(tasks, 1):
            name = f"{task.instance}, {task.method} from {task.start}"
            bar.begin(name)
            row = task.row()
            raise_again(row["reason"])
            store.append(row)
            text = f"{name}: {row['status']} gap {row['gap']} in {row['seconds']} s"
            bar.finish(f"{text}; {row['reason']}" if row["reason"] else text, sum(longest[done:]))


def _newest(tasks: Sequence[Task], store: RowStore) -> list[Row | None]:
    """Return the newest row of each task under the same conditions, None where there is none."""
    newest = {tuple(row[column] for column in KEY): row for row in store.rows()}
    return [newest.get(tuple(str(task.key_columns()[column]) for column in KEY)) for task in tasks]


def _report(instances: str, rows: Sequence[Row], stem: str) -> None:
    write_text(f"{stem}.md", markdown(instances, rows))
    if instances == "fixed":
        draw_gap_over_time([point for row in rows for point in _points(row)], f"{stem}.png")


@click.command()
@click.option("--set", "instances", type=click.Choice(list(SETS)), default="fixed", show_default=True)
@click.option("--time-limit", type=float, default=60.0, show_default=True, help="Seconds per solve.")
@click.option("--workers", type=int, default=2, show_default=True, help="Threads of each solve.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random choices.")
@click.option(
    "-o", "--output", help="CSV to extend.  [default: results/exact.csv, exact_goals.csv or exact_random.csv]"
)
@click.option("--alone", nargs=6, hidden=True, help="Solve here and print JSON: what the processes run.")
def main(
    instances: str,
    time_limit: float,
    workers: int,
    seed: int,
    output: str | None,
    alone: tuple[str, ...] | None,
) -> None:
    """Compare exact solvers; what is in the CSV under the same conditions is not solved again."""
    if alone:
        print(json.dumps(_solve_alone(*alone)))
        return
    output = output or f"results/exact{'' if instances == 'fixed' else '_' + instances}.csv"
    tasks = plan(instances, Allowance(time_limit, workers, seed))
    store = RowStore(Path(output), COLUMNS)
    known = zip(tasks, _newest(tasks, store), strict=True)
    todo = [task for task, row in known if row is None or row["status"] == FAILED]
    print(f"{len(tasks)} rows, {len(tasks) - len(todo)} of them already in {output}", file=sys.stderr)
    _run(todo, store)
    rows = [row for row in _newest(tasks, store) if row]
    _report(instances, rows, str(Path(output).with_suffix("")))
    print(Path(output).with_suffix(".md").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
