"""The rows of the realistic suite as a Markdown table and a figure: how much of the avoidable bubble goes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from .. import drawing
from ..drawing.panels import Point
from .realistic import METHODS
from .table import Cells

_BASELINE = "greedy-v"
_COMPARED = tuple(method for method in METHODS if method != _BASELINE)


def newest(rows: Sequence[Cells]) -> list[Cells]:
    """Keep the newest row of each instance and method, in first-seen order."""
    return list({(row["setting"], row["method"]): row for row in rows}.values())


def avoided(rows: Sequence[Cells], method: str) -> dict[str, float]:
    """Return by instance the share of the greedy's avoidable bubble that a method avoids.

    Avoidable is what lies above the best bound of any method; instances where nothing does, or where
    one of the two has no schedule, are left out.
    """
    points = [_point(name, mine, method) for name, mine in _by_instance(rows).items()]
    return {point["setting"]: point["share"] for point in points if point["share"] is not None}


def realistic_markdown(rows: Sequence[Cells]) -> str:
    """Return the table: bubbles in per cent of the cost, the bound's, and the mean share avoided."""
    head = ["instance", *(f"{method} bubble rate" for method in METHODS), "bound of the rate"]
    head += ["proof", "memory of 1F1B", "imbalance"]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, mine in _by_instance(rows).items():
        rates = [mine[m]["bubble_rate"] if m in mine else "" for m in METHODS]
        one = next(iter(mine.values()))
        bound, work = _bound(mine), int(one["work"])
        proof = next((row["proof"] for row in mine.values() if row["bound"] == str(bound)), "") or "-"
        cells = [f"{float(rate):.4f}" if rate else "-" for rate in rates]
        notes = [f"{float(one['memory_of_1f1b']):.2f}", f"{float(one['imbalance']):.3f}"]
        lines.append(_line([name, *cells, f"{(bound - work) / bound:.4f}", proof, *notes]))
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


def draw_avoided(rows: Sequence[Cells], path: str) -> None:
    """Draw, per instance, each method's share of the greedy's avoidable bubble that it avoids.

    Raises
    ------
    InputError
        If the path's suffix is not that of a figure, or the file cannot be written.
    """
    points = [_point(name, mine, m) for name, mine in _by_instance(rows).items() for m in _COMPARED]
    label = f"share of the avoidable bubble of {_BASELINE} (above the best bound) that is avoided"
    drawing.draw_shares(points, path, x_label=label)


def _point(name: str, mine: dict[str, Cells], method: str) -> Point:
    """Return the share that a method avoids on an instance, or why there is none."""
    missing = [m for m in (_BASELINE, method) if m not in mine or not mine[m]["cost"]]
    if missing:
        return _place(name, method, None, f"no schedule of {missing[0]}")
    bound, greedy = _bound(mine), int(mine[_BASELINE]["cost"])
    if greedy <= bound:
        return _place(name, method, None, f"{_BASELINE} is proven optimal: nothing to avoid")
    return _place(name, method, (greedy - int(mine[method]["cost"])) / (greedy - bound), "")


def _place(name: str, method: str, share: float | None, why: str) -> Point:
    return {"setting": name, "method": method, "share": share, "why": why}


def _by_instance(rows: Sequence[Cells]) -> dict[str, dict[str, Cells]]:
    found: dict[str, dict[str, Cells]] = {}
    for row in rows:
        found.setdefault(row["setting"], {})[row["method"]] = row
    return found


def _bound(mine: dict[str, Cells]) -> int:
    return max((int(row["bound"]) for row in mine.values() if row["bound"]), default=1)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
