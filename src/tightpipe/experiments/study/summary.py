"""The rows of a study as a table, methods side by side, in Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tabulate import tabulate

from ...files import write_text
from ..sweep.row import Row
from .points import bound_rate, method_name

_AXES = ("problem", "p", "n", "objective", "uneven", "comm", "memory", "seed", "time_limit")
_DASH = "-"


def write_summary(name: str, rows: Sequence[Row], figure: str | None, folder: Path) -> None:
    """Write ``summary.md`` and ``table.tex``."""
    head, body = _table(rows)
    lines = [
        f"# {name}",
        "",
        *([f"![{name}]({figure}.png)", ""] if figure is not None else []),
        _text(head, body, "github"),
        "",
        *_conditions(rows),
        "",
        *_failures(rows),
    ]
    write_text(folder / "summary.md", "\n".join(lines).rstrip() + "\n")
    latex = _text(head, body, "latex_booktabs")
    write_text(folder / "table.tex", f"% needs \\usepackage{{booktabs}}\n{latex}\n")


def _text(head: Sequence[str], body: Sequence[Sequence[str]], form: str) -> str:
    align = ["left" if name.replace(" ", "_") in _AXES else "right" for name in head]
    return tabulate(body, head, tablefmt=form, disable_numparse=True, colalign=align)


def _table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return head and lines: one line per point of the grid, the methods' bubble rates beside each other."""
    axes = [axis for axis in _AXES if axis == "problem" or _varies(axis, rows)]
    methods = list(dict.fromkeys(_method(row, rows) for row in rows))
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(_cell(row, axis) for axis in axes), []).append(row)
    body = [[*place, *_rates(here, methods, rows)] for place, here in lines.items()]
    return [*(axis.replace("_", " ") for axis in axes), *methods, "bound", "best gap"], body


def _varies(axis: str, rows: Sequence[Row]) -> bool:
    """Whether an axis tells rows apart; that heuristics have no time limit does not."""
    return len({getattr(row, axis) for row in rows} - {None}) > 1


def _cell(row: Row, axis: str) -> str:
    value = getattr(row, axis)
    if value is None or value == "":
        return _DASH
    return f"{value:g}" if isinstance(value, float) else str(value)


def _method(row: Row, rows: Sequence[Row]) -> str:
    """Name the method, with its warm start where there are several."""
    starts = {other.warm_start for other in rows if other.method == row.method}
    return method_name(row) + (f" from {row.warm_start}" if len(starts) > 1 else "")


def _rates(here: Sequence[Row], methods: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Return each method's bubble rate, the bound's, and the gap between the best schedule and the bound."""
    by_method = {_method(row, rows): row for row in here}
    rates = [_rate(by_method.get(method)) for method in methods]
    same = [row for row in here if row.placement == here[0].placement]  # bounds are of one placement
    costs = [row.cost for row in same if row.cost is not None]
    bounds = [row.bound for row in same if row.bound is not None]
    if not costs or not bounds:
        return [*rates, _DASH, _DASH]
    gap = (min(costs) - max(bounds)) / min(costs)
    return [*rates, f"{max(map(bound_rate, same)):.4f}", f"{gap:.2%}"]


def _rate(row: Row | None) -> str:
    if row is None or row.bubble_rate is None:
        return "failed" if row is not None and row.state == "failed" else _DASH
    return f"{row.bubble_rate:.4f}" + ("*" if row.status == "optimal" else "")


def _conditions(rows: Sequence[Row]) -> list[str]:
    """Say what the numbers are and under which conditions they were measured."""
    done = [row for row in rows if row.state == "done"]
    searched = [row for row in done if row.time_limit is not None]
    said = [
        "Bubble rate = (cost - work) / cost, * where it is proven optimal; bound: the bubble rate that no "
        "schedule undercuts; best gap = (smallest cost - largest bound) / smallest cost.",
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
            f"{_several(done, 'cores')} CPU cores, tightpipe {_several(done, 'tightpipe_version')}, "
            f"OR-Tools {_several(done, 'ortools_version')}, Python {_several(done, 'python_version')}."
        )
    return said


def _several(rows: Sequence[Row], axis: str) -> str:
    return ", ".join(dict.fromkeys(_cell(row, axis) for row in rows))


def _failures(rows: Sequence[Row]) -> list[str]:
    return [
        f"- failed: {row.problem} {row.p} x {row.n}, {row.memory}, {method_name(row)}: {row.error}"
        for row in rows
        if row.state == "failed"
    ]
