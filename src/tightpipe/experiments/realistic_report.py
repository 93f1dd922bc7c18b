"""The rows of the realistic suite as a Markdown table and a figure: how much of the avoidable bubble goes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from matplotlib.figure import Figure

from ..plot import style
from ..plot.output import write_figure
from .realistic import METHODS
from .row_store import Row

_BASELINE = "greedy-v"
_COMPARED = tuple(method for method in METHODS if method != _BASELINE)
_ROW_HEIGHT = 0.16  # inches
_MARGIN = 1.0
_MARKS = dict(zip(_COMPARED, "xosd", strict=True))


def newest(rows: Sequence[Row]) -> list[Row]:
    """Keep the newest row of each instance and method, in first-seen order."""
    return list({(row["setting"], row["method"]): row for row in rows}.values())


def avoided(rows: Sequence[Row], method: str) -> dict[str, float]:
    """Return by instance the share of the greedy's avoidable bubble that a method avoids.

    Avoidable is what lies above the best bound of any method; instances where nothing does, or where
    one of the two has no schedule, are left out.
    """
    shares = {}
    for name, mine in _by_instance(rows).items():
        if not all(m in mine and mine[m]["cost"] for m in (_BASELINE, method)):
            continue
        bound, greedy = _bound(mine), int(mine[_BASELINE]["cost"])
        if greedy > bound:
            shares[name] = (greedy - int(mine[method]["cost"])) / (greedy - bound)
    return shares


def realistic_markdown(rows: Sequence[Row]) -> str:
    """Return the table: bubbles in per cent of the cost, the bound's, and the mean share avoided."""
    head = ["instance", *(f"{method} bubble rate" for method in METHODS), "bound of the rate"]
    head += ["memory of 1F1B", "imbalance"]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, mine in _by_instance(rows).items():
        rates = [mine[m]["bubble_rate"] if m in mine else "" for m in METHODS]
        one = next(iter(mine.values()))
        bound, work = _bound(mine), int(one["work"])
        cells = [f"{float(rate):.4f}" if rate else "-" for rate in rates]
        notes = [f"{float(one['memory_of_1f1b']):.2f}", f"{float(one['imbalance']):.3f}"]
        lines.append(_line([name, *cells, f"{(bound - work) / bound:.4f}", *notes]))
    lines.append("")
    for method in _COMPARED:
        shares = list(avoided(rows, method).values())
        if shares:
            lines.append(
                f"Of the greedy's avoidable bubble (above the best bound) {method} avoids "
                f"{mean(shares):.1%} on average over {len(shares)} instances."
            )
    instances = _by_instance(rows).values()
    proven = sum(any(row["status"] == "optimal" for row in mine.values()) for mine in instances)
    lines += ["", f"Proven optimal: {proven} of {len(instances)} instances."]
    searched = [row for row in rows if row["time_limit"]]
    if searched:
        columns = ("time_limit", "workers", "seed", "host_cpus", "tightpipe_version", "ortools_version")
        limit, workers, seed, cpus, own, theirs = (
            ", ".join(dict.fromkeys(row[column] for row in searched)) for column in columns
        )
        lines += [
            "",
            f"Time limit {limit} s for each of cpsat, improve and best, workers: {workers} of {cpus} "
            f"CPU cores, seed {seed}, tightpipe {own}, OR-Tools {theirs}.",
        ]
    return "\n".join([*lines, ""])


def draw_avoided(rows: Sequence[Row], path: str) -> None:
    """Draw, per instance, each method's share of the greedy's avoidable bubble that it avoids."""
    with style.paper_style():
        names = list(_by_instance(rows))
        figure = Figure(figsize=(style.WIDTH, _MARGIN + _ROW_HEIGHT * len(names)), layout="constrained")
        axes = figure.add_subplot()
        for method in _COMPARED:
            shares = avoided(rows, method)
            x, y = list(shares.values()), [names.index(name) for name in shares]
            axes.plot(x, y, _MARKS[method], label=method)
        axes.axvline(0, color="black", linewidth=0.5)
        axes.set_xlim(-1.05, 1.05)  # worse than twice the greedy's avoidable bubble is off the scale
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("share of the greedy's avoidable bubble that is avoided (1: optimal)")
        figure.legend(loc="outside upper center", ncols=len(_COMPARED))
        write_figure(figure, path, style.DPI)


def _by_instance(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["setting"], {})[row["method"]] = row
    return found


def _bound(mine: dict[str, Row]) -> int:
    return max((int(row["bound"]) for row in mine.values() if row["bound"]), default=1)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
