"""The rows of a comparison as a Markdown table: one line per setting, methods side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .sweep.axes import OWN
from .table import Cells


def latest(rows: Sequence[Cells]) -> list[Cells]:
    """Keep the newest row of each setting, memory limit, objective and method, in first-seen order."""
    newest = {(r["setting"], r["m_offset"], r["objective"], r["method"]): r for r in rows}
    return list(newest.values())


def markdown(rows: Sequence[Cells], baseline: str) -> str:
    """Return the table; `baseline` is the method that the others are measured against."""
    kept = latest(rows)
    cells: dict[tuple[str, str, str], dict[str, Cells]] = {}
    for row in kept:
        cells.setdefault((row["setting"], row["m_offset"], row["objective"]), {})[row["method"]] = row
    methods = list(dict.fromkeys(row["method"] for row in kept))
    others = [method for method in methods if method != baseline]
    head = ["setting", "memory", f"{baseline} bubble rate"]
    for method in others:
        head += [f"{method} bubble rate", "bound of the rate", "gap", f"bubble saved by {method}"]
        head += ["status", "proof"]
    head += ["memory of 1F1B", "imbalance"]
    lines = [_line(head), _line(["---"] * len(head))]
    for (setting, m_offset, _), by_method in cells.items():
        base = by_method.get(baseline)
        line = [setting, _memory(m_offset), _rate(base)]
        for method in others:
            line += _against(by_method.get(method), base)
        line += [_said(by_method.values(), "memory_of_1f1b", 2), _said(by_method.values(), "imbalance", 3)]
        lines.append(_line(line))
    return "\n".join([*lines, "", *_conditions(kept), ""])


def _line(fields: Sequence[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _memory(m_offset: str) -> str:
    if not m_offset:  # not in activations
        return OWN
    offset = int(m_offset)
    return f"2p{offset:+d}" if offset else "2p"


def _said(rows: Iterable[Cells], column: str, digits: int) -> str:
    """Return what the rows of a line say, each once, in the sequence of the methods."""
    said = (f"{float(row[column]):.{digits}f}" if row[column] else "-" for row in rows)
    return ", ".join(dict.fromkeys(said))


def _rate(row: Cells | None) -> str:
    return f"{float(row['bubble_rate']):.4f}" if row and row["bubble_rate"] else "-"


def _against(row: Cells | None, base: Cells | None) -> list[str]:
    """Return rate, bound as a rate, gap, share of the baseline's bubble that is saved, status and proof."""
    if row is None or not row["cost"]:
        return ["-", "-", "-", "-", row["status"] if row else "-", "-"]
    bound, work = int(row["bound"]), int(row["work"])
    saved = "-"
    if base and base["bubble"] and int(base["bubble"]):
        saved = f"{1 - int(row['bubble']) / int(base['bubble']):.2%}"
    return [
        _rate(row),
        f"{(bound - work) / bound:.4f}",
        f"{float(row['gap']):.2%}",
        saved,
        row["status"],
        row["proof"] or "-",
    ]


def _conditions(rows: Sequence[Cells]) -> list[str]:
    """Say under which conditions the rows were measured."""
    searched = [row for row in rows if row["time_limit"]]
    if not searched:
        return []
    several = {
        column: ", ".join(dict.fromkeys(row[column] for row in searched))
        for column in ("time_limit", "workers", "seed", "host_cpus", "tightpipe_version", "ortools_version")
    }
    days = sorted(row["finished_at"][:10] for row in searched)
    span = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return [
        f"Measured {span} on {several['host_cpus']} CPU cores: time limit {several['time_limit']} s "
        f"per solve, {several['workers']} workers, seed {several['seed']}, "
        f"tightpipe {several['tightpipe_version']}, OR-Tools {several['ortools_version']}.",
        "Bubble rate = (cost - work) / cost; bound of the rate = (bound - work) / bound; "
        "gap = (cost - bound) / cost; memory of 1F1B = memory limit / peak memory of 1F1B with one stage on "
        "each device; imbalance = largest work of a device / mean work - 1.",
    ]
