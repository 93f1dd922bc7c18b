"""A result is shown in about eleven lines of text by `print` and by ``tightpipe solve``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .metrics import costs

if TYPE_CHECKING:
    from .result import Proof, Result, Status
    from .schedule import Schedule


def summary(result: Result) -> dict[str, object]:
    """Return the lines of a result's text as label and value; a value of None or "" means no line."""
    return {
        "method": result.method,
        "status": status_text(result.status, result.proof),
        "cost": result.cost,
        "objective": objective_text(result.schedule),
        "bound": result.bound,
        "gap": share_text(result.gap),
        "work": result.work,
        "imbalance": _imbalance(result),
        "bubble": result.bubble,
        "bubble_rate": share_text(result.bubble_rate),
        "peak_memory": _memory(result),
        "params": result.params.changed_text(),
        "seconds": f"{result.seconds:.3f}",
        "reason": result.reason,
    }


def lines_of(pairs: Mapping[str, object]) -> str:
    """Return a line ``key  value`` for each pair, with the values aligned; None and "" get no line."""
    shown = {key: value for key, value in pairs.items() if value is not None and value != ""}
    width = max(map(len, shown))
    return "\n".join(f"{key:<{width}}  {value}" for key, value in shown.items())


def status_text(status: Status, proof: Proof | None) -> str:
    """Return the status and the kind of proof of the bound, e.g. ``optimal (bound: cp-sat, trusted)``."""
    if proof is None:
        return str(status)
    trusted = ", trusted" if proof.trusted else ""
    return f"{status} (bound: {proof}{trusted})"


def objective_text(schedule: Schedule | None) -> str | None:
    """Return the objective of a schedule, and what it costs under the others."""
    if schedule is None:
        return None
    own, found = str(schedule.instance.objective), costs(schedule)
    others = ", ".join(f"{name} {ticks}" for name, ticks in found.items() if name != own)
    return f"{own} (the same schedule: {others})"


def _imbalance(result: Result) -> str | None:
    """Return the imbalance and the busiest devices; None if all devices are equally busy."""
    if result.imbalance == 0:  # no device is busier than the others
        return None
    devices = ", ".join(map(str, result.busiest))
    return f"{share_text(result.imbalance)} (busiest device: {devices})"


def _memory(result: Result) -> str | None:
    """Return the largest memory of a device, followed by the limit if all devices have the same one.

    Without a schedule, or where the instance has no memory, return None.
    """
    if result.schedule is None or result.instance.memory is None:
        return None
    limits = {result.instance.memory_limit(device) for device in range(result.instance.devices)}
    (limit,) = limits if len(limits) == 1 else (None,)
    return str(result.peak_memory) if limit is None else f"{result.peak_memory} of {limit}"


def share_text(value: float | None) -> str | None:
    """Return a share as text with six decimals, e.g. ``0.012500``; None where the share is unknown."""
    return None if value is None else f"{value:.6f}"
