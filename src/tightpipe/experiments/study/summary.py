"""The rows of a study become a table in Markdown and LaTeX, in which methods stand side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.files import write_text
from ...core.tables import LatexTable, markdown_text, write_latex
from ..sweep.row import Row
from .figure_data import bound_rate, method_name

_AXES = ("problem", "p", "n", "objective", "uneven", "comm", "memory", "seed", "time_limit")
_DASH = "-"
_MEANING = (
    "Bubble rate = (cost - work) / cost, * where it is proven optimal; bound: the bubble rate that no "
    "schedule undercuts; best gap = (smallest cost - largest bound) / smallest cost."
)


def write_summary(name: str, rows: Sequence[Row], figure: str | None, folder: Path) -> None:
    """Write ``summary.md`` and ``table.tex`` into a folder.

    Parameters
    ----------
    name
        The name of the study, which is the title of the summary.
    rows
        The rows of the study.
    figure
        The name, without suffix, of a PNG file in the folder that the summary shows; None for no figure.
    folder
        The folder of the study.
    """
    methods = list(dict.fromkeys(_method(row, rows) for row in rows))
    head, body = _table(rows, methods)
    lines = [
        f"# {name}",
        "",
        *([f"![{name}]({figure}.png)", ""] if figure is not None else []),
        markdown_text(head, body, _left(head)),
        "",
        *_conditions(rows),
        "",
        *_failures(rows),
        *_unsolved(rows),
    ]
    write_text(folder / "summary.md", "\n".join(lines).rstrip() + "\n")
    write_latex(
        LatexTable(head, body, methods, len(_left(head)), f"{name}. {_MEANING}"), folder / "table.tex", name
    )


def _left(head: Sequence[str]) -> list[str]:
    return [name for name in head if name.replace(" ", "_") in _AXES]


def _table(rows: Sequence[Row], methods: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return head and lines of the table, with a line for each combination of the axes' values in the rows.

    A line shows all methods. An axis with only one value is left out, unless it is ``problem``.
    """
    axes = [axis for axis in _AXES if axis == "problem" or _varies(axis, rows)]
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(_cell(row, axis) for axis in axes), []).append(row)
    notes = {name: write for name, write in _NOTES.items() if any(map(write, rows))}
    body = [
        [*place, *(_note(write, here) for write in notes.values()), *_rates(here, methods, rows)]
        for place, here in lines.items()
    ]
    proof = ["proof"] if _has_proofs(rows) else []
    return [*(axis.replace("_", " ") for axis in axes), *notes, *methods, "bound", *proof, "best gap"], body


def _has_proofs(rows: Sequence[Row]) -> bool:
    """Return whether any row says what its bound rests on, which rows of early versions do not."""
    return any(row.proof is not None for row in rows)


def _share(row: Row) -> str:
    return "" if row.memory_of_1f1b is None else f"{row.memory_of_1f1b:.2f}"


def _imbalance(row: Row) -> str:
    return f"{row.imbalance:.3f}" if row.imbalance else ""


_NOTES: dict[str, Callable[[Row], str]] = {"memory of 1F1B": _share, "imbalance": _imbalance}
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
    alike = [other for other in rows if (other.method, other.objective) == (row.method, row.objective)]
    starts = {other.warm_start for other in alike}
    return method_name(row) + (f" from {row.warm_start}" if len(starts) > 1 else "")


def _rates(here: Sequence[Row], methods: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return the cells of a table line: rates, best bound as a bubble rate, its proof, and the gap to it.

    Each method has its bubble rate. The proof is left out if no row has one. The gap is from the cheapest
    cost to the best bound.
    """
    by_method = {_method(row, rows): row for row in here}
    rates = [_rate(by_method.get(method)) for method in methods]
    same = [row for row in here if row.placement == here[0].placement]  # a bound holds for one placement
    costs = [row.cost for row in same if row.cost is not None]
    bounds = {row.bound: row.proof for row in same if row.bound is not None}
    dashes = [_DASH] * _has_proofs(rows)
    if not costs or not bounds:
        return [*rates, _DASH, *dashes, _DASH]
    proof = [bounds[max(bounds)] or _DASH] if dashes else []
    gap = (min(costs) - max(bounds)) / min(costs)
    return [*rates, f"{max(map(bound_rate, same)):.4f}", *proof, f"{gap:.2%}"]


def _rate(row: Row | None) -> str:
    if row is None or row.bubble_rate is None:
        return "failed" if row is not None and row.state == "failed" else _DASH
    return f"{row.bubble_rate:.4f}" + ("*" if row.status == "optimal" else "")


def _conditions(rows: Sequence[Row]) -> list[str]:
    """Return lines that say what the numbers mean and under which conditions they were measured."""
    done = [row for row in rows if row.state == "done"]
    searched = [row for row in done if row.time_limit is not None]
    said = [
        _MEANING,
        *(text for name, text in _SAID.items() if any(map(_NOTES[name], rows))),
    ]
    if searched:
        said.append(
            f"Time limit {_several(searched, 'time_limit')} s per solve, {_several(searched, 'threads')} "
            f"thread(s), seed {_several(searched, 'seed')}."
        )
    days = sorted({str(row.finished_at)[:10] for row in done})
    if done:
        said.append(
            f"{len(done)} of {len(rows)} solves done, {' to '.join(dict.fromkeys((days[0], days[-1])))}, on "
            f"{_several(done, 'cores')} CPU cores, tightpipe {_several(done, 'engine')}, "
            f"OR-Tools {_several(done, 'ortools_version')}, Python {_several(done, 'python_version')}."
        )
    return said


def _several(rows: Sequence[Row], axis: str) -> str:
    return ", ".join(dict.fromkeys(_cell(row, axis) for row in rows))


_SAID = {
    "memory of 1F1B": "Memory of 1F1B: the memory limit over the peak memory of 1F1B with one stage on each "
    "device, by which limits of different placements compare.",
    "imbalance": "Imbalance = largest work of a device / mean work - 1: what the bubble rate leaves out.",
}


def _failures(rows: Sequence[Row]) -> list[str]:
    return [f"- failed: {_solve(row, rows)}: {row.error}" for row in rows if row.state == "failed"]


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
