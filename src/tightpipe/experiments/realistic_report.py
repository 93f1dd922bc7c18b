"""The rows of the realistic suite become a Markdown table, and a figure of the bubble that methods avoid."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from .. import drawing
from ..core.tables import markdown_text
from ..drawing.panels import Point
from .realistic import METHODS
from .results_table import Cells
from .table_cells import bound_rate, said_params

_BASELINE = "greedy-v"
_COMPARED = tuple(method for method in METHODS if method != _BASELINE)


def newest(rows: Sequence[Cells]) -> list[Cells]:
    """Return the newest row of each instance and method, in the sequence in which these first occur."""
    return list({(row["setting"], row["method"]): row for row in rows}.values())


def avoided(rows: Sequence[Cells], method: str) -> dict[str, float]:
    """Return by instance the share of the avoidable bubble of `greedy-v` that a method avoids.

    The avoidable bubble of an instance is the cost of `greedy-v` less the largest bound of any method. A
    method that costs more than `greedy-v` has a negative share. An instance is left out if it has no
    avoidable bubble or no bound, or if `greedy-v` or the method has no schedule for it.
    """
    points = [_point(name, by_method, method) for name, by_method in _by_instance(rows).items()]
    return {point["setting"]: point["share"] for point in points if point["share"] is not None}


def realistic_markdown(rows: Sequence[Cells]) -> str:
    """Return a page in Markdown about the suite.

    A table has the bubble rate of each method and the best bound for each instance. Lines below the
    table say which share of the avoidable bubble of `greedy-v` each other method avoids, as a mean over the
    instances; see `avoided`.
    """
    head = ["instance", *(f"{method} bubble rate" for method in METHODS), "bound of the rate"]
    head += ["proof", "memory of 1F1B", "imbalance"]
    body = []
    for name, by_method in _by_instance(rows).items():
        rates = [by_method[m]["bubble_rate"] if m in by_method else "" for m in METHODS]
        one = next(iter(by_method.values()))
        bound, work = _bound(by_method), int(one["work"])
        proof = next((row["proof"] for row in by_method.values() if row["bound"] == str(bound)), "") or "-"
        least = "-" if bound is None else bound_rate(bound, work)
        cells = [f"{float(rate):.4f}" if rate else "-" for rate in rates]
        notes = [f"{float(one['memory_of_1f1b']):.2f}", f"{float(one['imbalance']):.3f}"]
        body.append([name, *cells, least, proof, *notes])
    lines = [markdown_text(head, body, ("instance", "proof")), ""]
    for method in _COMPARED:
        shares = list(avoided(rows, method).values())
        if shares:
            lines.append(
                f"Of what the greedy costs above the best bound, which is the most that can be avoided, "
                f"{method} avoids {mean(shares):.1%} on average over {len(shares)} instances."
            )
    instances = _by_instance(rows).values()
    proven = sum(any(row["status"] == "optimal" for row in by_method.values()) for by_method in instances)
    lines += ["", f"Proven optimal: {proven} of {len(instances)} instances."]
    searched = [row for row in rows if row["time_limit"]]
    if searched:
        columns = ("time_limit", "workers", "seed", "host_cpus", "engine", "ortools_version")
        limit, workers, seed, cpus, own, theirs = (
            ", ".join(dict.fromkeys(row[column] for row in searched)) for column in columns
        )
        lines += [
            "",
            f"Time limit {limit} s for each of cpsat, improve and best, workers: {workers} of {cpus} "
            f"CPU cores, seed {seed}, tightpipe {own}, OR-Tools {theirs}.",
            *said_params(rows),
        ]
    return "\n".join([*lines, ""])


def draw_avoided(rows: Sequence[Cells], path: str) -> None:
    """Draw for each instance the share of the avoidable bubble that each method avoids; see `avoided`.

    Raises
    ------
    InputError
        If the path's suffix is not that of a figure, or the file cannot be written.
    """
    points = [
        {**_point(name, by_method, method), "engine": next(iter(by_method.values()))["engine"]}
        for name, by_method in _by_instance(rows).items()
        for method in _COMPARED
    ]
    label = f"share of the avoidable bubble of {_BASELINE} (above the best bound) that is avoided"
    drawing.draw_shares(points, path, x_label=label)


def _point(name: str, by_method: dict[str, Cells], method: str) -> Point:
    """Return a point of the figure: the share that a method avoids on an instance, or why there is none."""
    missing = [m for m in (_BASELINE, method) if m not in by_method or not by_method[m]["cost"]]
    if missing:
        return _place(name, method, None, f"no schedule of {missing[0]}")
    bound, greedy = _bound(by_method), int(by_method[_BASELINE]["cost"])
    if bound is None:
        return _place(name, method, None, "no bound is proven")
    if greedy <= bound:
        return _place(name, method, None, f"{_BASELINE} is proven optimal: nothing to avoid")
    return _place(name, method, (greedy - int(by_method[method]["cost"])) / (greedy - bound), "")


def _place(name: str, method: str, share: float | None, why: str) -> Point:
    return {"setting": name, "method": method, "share": share, "why": why}


def _by_instance(rows: Sequence[Cells]) -> dict[str, dict[str, Cells]]:
    found: dict[str, dict[str, Cells]] = {}
    for row in rows:
        found.setdefault(row["setting"], {})[row["method"]] = row
    return found


def _bound(by_method: dict[str, Cells]) -> int | None:
    return max((int(row["bound"]) for row in by_method.values() if row["bound"]), default=None)
