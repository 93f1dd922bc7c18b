"""The rows of a study become a table in Markdown and LaTeX, in which methods stand side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean

from ..base.tables import LatexTable, markdown_text
from ..model.costs import Objective
from .axes import OF_1F1B, OWN
from .figure_data import avoided, best_bound, method_name, rate
from .task import Row

_AXES = (
    *("problem", "p", "n", "objective", "uneven", "comm", "discount", "offload", "memory"),
    *("seed", "time_limit"),
)
_DASH = "-"
_MEANING = (
    "Bubble rate = (cost - work) / cost, * where it is proven optimal; bound: the bubble rate that no "
    "schedule undercuts in the placements that have one; best gap = (smallest cost - largest bound) / "
    "smallest cost."
)


def page(name: str, rows: Sequence[Row], picture: str | None = None, baseline: str | None = None) -> str:
    """Return a page in Markdown, titled `name`, in which the methods stand side by side."""
    head, body = _table(rows, baseline)
    lines = [
        f"# {name}",
        "",
        *([f"![{name}]({picture})", ""] if picture is not None else []),
        markdown_text(head, body, _left(head)),
        "",
        *([] if baseline is None else _avoided(rows, baseline)),
        *_conditions(rows),
        "",
        *([f"- failed: {_solve(row, rows)}: {row.error}" for row in rows if row.state == "failed"]),
        *_unsolved(rows),
    ]
    return "\n".join(lines).rstrip() + "\n"


def latex_table(name: str, rows: Sequence[Row], caption: str | None = None) -> LatexTable:
    """Return the table for a paper, which leaves out the columns of notes that `page` has."""
    head, body = _table(rows, None)
    left_out = (*_NOTES, "proof", *map(_AS.format, Objective))
    kept = [k for k, title in enumerate(head) if title not in left_out]
    short = [[line[k] for k in kept] for line in (head, *body)]
    return LatexTable(short[0], short[1:], _methods(rows), len(_left(head)), caption or _caption(name, rows))


def _caption(name: str, rows: Sequence[Row]) -> str:
    """Return a caption that explains the columns, and names the objective unless a column does."""
    objectives = sorted({row.objective for row in rows})
    named = f" Objective: {objectives[0]}." if len(objectives) == 1 else ""
    return f"{name}. {_MEANING}{named}"


def _left(head: Sequence[str]) -> list[str]:
    return [name for name in head if name.replace(" ", "_") in _AXES]


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(_method(row, rows) for row in rows))


def _table(rows: Sequence[Row], baseline: str | None) -> tuple[list[str], list[list[str]]]:
    """Return head and lines of the table: a line for each combination of the axes' values in the rows."""
    methods, lines, others = _methods(rows), _lines(rows), _others(rows)
    notes = {name: write for name, write in _NOTES.items() if any(map(write, rows))}
    saved = [] if baseline is None else ["bubble saved"]
    body = [
        [
            *place,
            *(_note(write, here) for write in notes.values()),
            *_rates(here, methods, rows),
            *_under(here, others),
            *([] if baseline is None else [_saved(_by_method(here, rows), _work(here), baseline)]),
        ]
        for place, here in lines.items()
    ]
    proof = ["proof"] if _has_proofs(rows) else []
    axes = (axis.replace("_", " ") for axis in _shown(rows))
    return [*axes, *notes, *methods, "bound", *proof, "best gap", *map(_AS.format, others), *saved], body


_AS = "best as {}"


def _others(rows: Sequence[Row]) -> list[str]:
    """Return the objectives, besides that of all rows, under which it is known what schedules cost."""
    known = (name for name in map(str, Objective) if any(getattr(row, name) is not None for row in rows))
    return [name for name in known if {row.objective for row in rows} != {name}]


def _under(here: Sequence[Row], objectives: Sequence[str]) -> list[str]:
    """Return the bubble rate of the cheapest schedule of a line under each of these objectives."""
    best = min((row for row in here if row.cost is not None), key=lambda row: row.cost or 0, default=None)
    costs = [None if best is None else getattr(best, name) for name in objectives]
    return [_DASH if ticks is None else f"{rate(ticks, _work(here)):.4f}" for ticks in costs]


def _shown(rows: Sequence[Row]) -> list[str]:
    return [axis for axis in _AXES if axis == "problem" or _varies(axis, rows)]


def _lines(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Return the rows of each line of the table, by the texts of the line's place."""
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(_cell(row, axis) for axis in _shown(rows)), []).append(row)
    return lines


def _by_method(here: Sequence[Row], rows: Sequence[Row]) -> dict[str, int]:
    """Return the least cost of each method that has a schedule in a line of the table."""
    costs: dict[str, int] = {}
    for row in here:
        if row.cost is not None:
            name = _method(row, rows)
            costs[name] = min(row.cost, costs.get(name, row.cost))
    return costs


def _saved(costs: Mapping[str, int], work: int, baseline: str) -> str:
    """Return which share of the bubble of `baseline` the cheapest schedule of a line saves."""
    bubble = costs.get(baseline, work) - work
    return f"{1 - (min(costs.values()) - work) / bubble:.2%}" if bubble > 0 else _DASH


def _avoided(rows: Sequence[Row], baseline: str) -> list[str]:
    """Return a line that says what each method avoids of the cost of `baseline` above the best bound."""
    shares: dict[str, list[float]] = {}
    for here in _lines(rows).values():
        costs, (bound, _) = _by_method(here, rows), best_bound(here)
        if bound is not None and costs.get(baseline, 0) > bound:
            for name in costs.keys() - {baseline}:
                shares.setdefault(name, []).append(avoided(costs[baseline], costs[name], bound))
    said = ", ".join(
        f"{name} {mean(shares[name]):.1%} ({len(shares[name])})" for name in _methods(rows) if name in shares
    )
    most = f"Of what {baseline} costs above the best bound, which is the most that can be avoided,"
    return [f"{most} methods avoid on average (lines): {said}.", ""] if said else []


def _has_proofs(rows: Sequence[Row]) -> bool:
    """Return whether any row says what its bound rests on, which rows without a bound do not."""
    return any(row.proof is not None for row in rows)


def _share(row: Row) -> str:
    said = row.memory_of_1f1b is None or row.memory.endswith(OF_1F1B)
    return "" if said else f"{row.memory_of_1f1b:.2f}"


_NOTES: dict[str, Callable[[Row], str]] = {
    "memory of 1F1B": _share,
    "imbalance": lambda row: f"{row.imbalance:.3f}" if row.imbalance else "",
}
"""Columns beside the axes. A column is shown if its function returns a text for any row."""


def _note(write: Callable[[Row], str], here: Sequence[Row]) -> str:
    """Return the distinct texts that `write` returns for the rows of a line, whose placements may differ."""
    return ", ".join(dict.fromkeys(write(row) or _DASH for row in here))


def _varies(axis: str, rows: Sequence[Row]) -> bool:
    """Return whether an axis has several values among the rows; None does not count as a value."""
    return len({getattr(row, axis) for row in rows} - {None}) > 1


def _cell(row: Row, axis: str) -> str:
    value = getattr(row, axis)
    if value is None or value == "":
        return _DASH
    return f"{value:g}" if isinstance(value, float) else str(value)


def _method(row: Row, rows: Sequence[Row]) -> str:
    """Return the name of a row's method, with its warm start if the method has several in `rows`."""
    starts = {_start(other) for other in rows if other.method == row.method}
    return method_name(row) + (f" from {_start(row)}" if len(starts) > 1 else "")


def _start(row: Row) -> str:
    """Return the warm start that the experiment names, without the solves that a task follows."""
    return (row.warm_start or "none").partition("+")[0]


def _rates(here: Sequence[Row], methods: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return the cells of a table line: rates, best bound as a bubble rate, its proof, and the gap to it."""
    work = _work(here)
    rates = [_rate([row for row in here if _method(row, rows) == method], work) for method in methods]
    costs = [row.cost for row in here if row.cost is not None]
    bound, proof = best_bound(here)
    dashes = [_DASH] * _has_proofs(rows)
    if not costs or bound is None:
        return [*rates, _DASH, *dashes, _DASH]
    gap = (min(costs) - bound) / min(costs)
    return [*rates, f"{rate(bound, work):.4f}", *([proof or _DASH] if dashes else []), f"{gap:.2%}"]


def _work(here: Sequence[Row]) -> int:
    """Return the work over which all rates of a line are: the least of any placement."""
    return min((row.work for row in here if row.work is not None), default=0)


def _rate(rows: Sequence[Row], work: int) -> str:
    """Return the cell of the rows of one method in a line: the bubble rate of the cheapest schedule."""
    found = min((row for row in rows if row.cost is not None), key=lambda row: row.cost or 0, default=None)
    if found is None or found.cost is None:
        return "failed" if any(row.state == "failed" for row in rows) else _DASH
    return f"{rate(found.cost, work):.4f}" + ("*" if found.status == "optimal" else "")


def _conditions(rows: Sequence[Row]) -> list[str]:
    """Return lines that say what the numbers mean and under which conditions they were measured."""
    done = [row for row in rows if row.state == "done"]
    ran = [row for row in done if row.finished_at is not None]  # where a limit holds nothing, none has to
    searched = [row for row in ran if row.time_limit is not None]
    said = [_MEANING, *(text for name, text in _SAID.items() if any(map(_NOTES[name], rows)))]
    if others := _others(rows):
        named = ", ".join(others)
        said.append(f"Best as {named}: the bubble rate of the cheapest schedule under this objective.")
    same = {
        axis: {getattr(row, axis) for row in rows}
        for axis in ("objective", "comm", "discount", "offload", "memory")
    }
    equal = [f"{axis} {value}" for axis, (value, *more) in same.items() if not more and value != OWN]
    if equal:
        said.append(f"In all rows: {', '.join(equal)}.")
    if searched:
        said.append(
            f"Time limit {_several(searched, 'time_limit')} s per solve, {_several(searched, 'threads')} "
            f"thread(s), seed {_several(searched, 'seed')}."
        )
    changed = dict.fromkeys(row.params for row in rows if row.params is not None)
    said += [f"Parameters that are not the defaults: {text}." for text in changed]
    days = sorted({str(row.finished_at)[:10] for row in ran})
    if ran:
        said.append(
            f"{len(done)} of {len(rows)} solves done, {' to '.join(dict.fromkeys((days[0], days[-1])))}, on "
            f"{_several(ran, 'cores')} CPU cores, tightpipe {_several(ran, 'engine')}, "
            f"OR-Tools {_several(ran, 'ortools_version')}, Python {_several(ran, 'python_version')}."
        )
    return said


def _several(rows: Sequence[Row], axis: str) -> str:
    return ", ".join(dict.fromkeys(_cell(row, axis) for row in rows))


_SAID = {
    "memory of 1F1B": "Memory of 1F1B: the memory limit over the peak memory of 1F1B with one stage on each "
    "device, by which limits of different placements compare.",
    "imbalance": "Imbalance = largest work of a device / mean work - 1: what the bubble rate leaves out.",
}


def _unsolved(rows: Sequence[Row]) -> list[str]:
    unsolved = [row for row in rows if row.state == "done" and row.cost is None]
    return [f"- {row.status}: {_solve(row, rows)}: {row.reason}" for row in unsolved]


def _solve(row: Row, rows: Sequence[Row]) -> str:
    """Return the name of a solve: its problem, memory and method, and its values of all axes that vary."""
    varying = [axis for axis in _AXES if axis not in _NAMED and _varies(axis, rows)]
    said = (f"{axis.replace('_', ' ')} {_cell(row, axis)}" for axis in varying)
    return ", ".join((f"{row.problem} {row.p} x {row.n}", row.memory, *said, _method(row, rows)))


_NAMED = ("problem", "p", "n", "memory")
"""The axes whose values a solve's name always has."""
