"""The rows of a comparison become a table in Markdown or LaTeX, in which methods stand side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from ..core.tables import LatexTable, markdown_text
from .results_table import Cells
from .sweep.axes import OWN
from .table_cells import bound_rate, said_params

_DASH = "-"
_MEANING = (
    "Bubble rate = (cost - work) / cost, * where it is proven optimal; bound: the bubble rate that no "
    "schedule of the same placement undercuts; gap = (smallest cost - largest bound) / smallest cost; memory "
    "in activations of one stage, p being the number of devices."
)


def latest(rows: Sequence[Cells]) -> list[Cells]:
    """Return the newest row of each setting, memory limit, objective and method, in first-seen order."""
    newest = {(r["setting"], r["m_offset"], r["objective"], r["method"]): r for r in rows}
    return list(newest.values())


def memory_label(row: Cells) -> str:
    """Return the memory limit of a row as it is given to ``--memory``, e.g. "2p" or "2.5p"."""
    if not row["m_offset"]:  # the instance's own limit, which is not counted in activations
        return OWN
    share = 2 + Fraction(int(row["m_offset"]), int(row["p"]))
    return f"{float(share):g}p" if (10000 * share).denominator == 1 else f"{share}p"


def markdown(rows: Sequence[Cells], baseline: str) -> str:
    """Return a page in Markdown with a line per setting, memory limit and objective.

    Where all rows have the same objective, there is no column for it.

    Parameters
    ----------
    rows
        The rows of the comparison, oldest first; only the `latest` ones count.
    baseline
        The method against which all other methods are measured.
    """
    kept = latest(rows)
    cells = _by_place(kept)
    methods = list(dict.fromkeys(row["method"] for row in kept))
    others = [method for method in methods if method != baseline]
    several = _objectives(kept) > 1
    head = ["setting", "memory", *(["objective"] if several else []), f"{baseline} bubble rate"]
    for method in others:
        head += [f"{method} bubble rate", "bound of the rate", "gap", f"bubble saved by {method}"]
        head += ["status", "proof"]
    head += ["memory of 1F1B", "imbalance"]
    body = []
    for (setting, memory, objective), by_method in cells.items():
        base = by_method.get(baseline)
        line = [setting, memory, *([objective] if several else []), _rate(base)]
        for method in others:
            line += _against(by_method.get(method), base)
        line += [_said(by_method.values(), "memory_of_1f1b", 2), _said(by_method.values(), "imbalance", 3)]
        body.append(line)
    left = ("setting", "memory", "objective", "status", "proof")
    return "\n".join([markdown_text(head, body, left), "", *_conditions(kept), ""])


def latex_table(rows: Sequence[Cells], caption: str | None) -> LatexTable:
    """Return the table for a paper, which has fewer columns than the table of `markdown`.

    Parameters
    ----------
    rows
        The rows of the comparison, oldest first; only the `latest` ones count.
    caption
        The caption; None for one that explains the columns.
    """
    kept = latest(rows)
    methods = list(dict.fromkeys(row["method"] for row in kept))
    several = _objectives(kept) > 1
    body = []
    for (setting, memory, objective), found in _by_place(kept).items():
        place = [setting, memory, *([objective] if several else [])]
        body.append([*place, *(_starred(found.get(method)) for method in methods), *_bound_and_gap(found)])
    texts = ["setting", "memory", *(["objective"] if several else [])]
    return LatexTable([*texts, *methods, "bound", "gap"], body, methods, len(texts), caption or _MEANING)


def _objectives(rows: Sequence[Cells]) -> int:
    """Return how many objectives the rows have."""
    return len({row["objective"] for row in rows})


def _starred(row: Cells | None) -> str:
    return _rate(row) + ("*" if row is not None and row["status"] == "optimal" else "")


def _bound_and_gap(found: Mapping[str, Cells]) -> list[str]:
    """Return the best bound as a bubble rate, and the gap from the cheapest cost to this bound.

    Only rows in the placement of the first row count, because a bound holds for one placement.
    """
    first = next(iter(found.values()))
    same = [row for row in found.values() if row["placement"] == first["placement"]]
    costs = [int(row["cost"]) for row in same if row["cost"]]
    bounds = [int(row["bound"]) for row in same if row["bound"]]
    if not costs or not bounds:
        return [_DASH, _DASH]
    bound, cost = max(bounds), min(costs)
    return [bound_rate(bound, int(first["work"])), f"{(cost - bound) / cost:.2%}"]


def _by_place(rows: Sequence[Cells]) -> dict[tuple[str, str, str], dict[str, Cells]]:
    """Return the rows by setting, memory limit and objective, and among these by method."""
    cells: dict[tuple[str, str, str], dict[str, Cells]] = {}
    for row in rows:
        cells.setdefault((row["setting"], memory_label(row), row["objective"]), {})[row["method"]] = row
    return cells


def _said(rows: Iterable[Cells], column: str, digits: int) -> str:
    """Return the distinct values of `rows` in a column, with `digits` decimals, in the order of the rows."""
    said = (f"{float(row[column]):.{digits}f}" if row[column] else _DASH for row in rows)
    return ", ".join(dict.fromkeys(said))


def _rate(row: Cells | None) -> str:
    return f"{float(row['bubble_rate']):.4f}" if row and row["bubble_rate"] else _DASH


def _against(row: Cells | None, base: Cells | None) -> list[str]:
    """Return the cells of a method's row in comparison with the row `base`.

    They are bubble rate, bound as a bubble rate, gap, saved share of the bubble of `base`, status and proof.
    """
    if row is None or not row["cost"]:
        return [_DASH, _DASH, _DASH, _DASH, row["status"] if row else _DASH, _DASH]
    saved = _DASH
    if base and base["bubble"] and int(base["bubble"]):
        saved = f"{1 - int(row['bubble']) / int(base['bubble']):.2%}"
    return [
        _rate(row),
        bound_rate(int(row["bound"]), int(row["work"])) if row["bound"] else _DASH,
        f"{float(row['gap']):.2%}" if row["gap"] else _DASH,
        saved,
        row["status"],
        row["proof"] or _DASH,
    ]


def _conditions(rows: Sequence[Cells]) -> list[str]:
    """Return lines on the conditions of the searches and on what the columns mean.

    There are no lines if no row comes from a method that searches.
    """
    searched = [row for row in rows if row["time_limit"]]
    if not searched:
        return []
    several = {
        column: ", ".join(dict.fromkeys(row[column] for row in searched))
        for column in ("time_limit", "workers", "seed", "host_cpus", "engine", "ortools_version")
    }
    days = sorted(row["finished_at"][:10] for row in searched)
    span = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return [
        f"Measured {span} on {several['host_cpus']} CPU cores: time limit {several['time_limit']} s "
        f"per solve, {several['workers']} workers, seed {several['seed']}, "
        f"tightpipe {several['engine']}, OR-Tools {several['ortools_version']}.",
        *said_params(rows),
        "Bubble rate = (cost - work) / cost; bound of the rate = (bound - work) / bound; "
        "gap = (cost - bound) / cost; memory of 1F1B = memory limit / peak memory of 1F1B with one stage on "
        "each device; imbalance = largest work of a device / mean work - 1.",
    ]
