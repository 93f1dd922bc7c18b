"""A result is shown in about ten lines of text by `print` and by ``tightpipe solve``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Result


def summary(result: Result) -> dict[str, object]:
    """Return the figures that the text shows, in the sequence of its lines; None where one is unknown."""
    uneven = result.imbalance > 0  # if work is even, no device is busier than the others
    return {
        "method": result.method,
        "status": _status(result),
        "cost": result.cost,
        "bound": result.bound,
        "gap": _share(result.gap),
        "work": result.work,
        "imbalance": _share(result.imbalance),
        "busiest": " ".join(map(str, result.busiest)) if uneven else None,
        "bubble": result.bubble,
        "bubble_rate": _share(result.bubble_rate),
        "peak_memory": _memory(result),
        "seconds": f"{result.seconds:.3f}",
        "reason": result.reason,
    }


def lines_of(pairs: Mapping[str, object]) -> str:
    """Return a line ``key  value`` for each pair, with the values aligned; None and "" get no line."""
    shown = {key: value for key, value in pairs.items() if value is not None and value != ""}
    width = max(map(len, shown))
    return "\n".join(f"{key:<{width}}  {value}" for key, value in shown.items())


def _status(result: Result) -> str:
    """Return the status, followed by what the bound rests on."""
    if result.proof is None:
        return str(result.status)
    trusted = ", trusted" if result.proof.trusted else ""
    return f"{result.status} (bound: {result.proof}{trusted})"


def _memory(result: Result) -> str | None:
    """Return the largest memory of a device, followed by the limit if all devices have the same one."""
    if result.schedule is None or result.instance.memory is None:
        return None
    limits = {result.instance.memory_limit(device) for device in range(result.instance.devices)}
    (limit,) = limits if len(limits) == 1 else (None,)
    return str(result.peak_memory) if limit is None else f"{result.peak_memory} of {limit}"


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.6f}"
