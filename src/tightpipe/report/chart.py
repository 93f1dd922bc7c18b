"""A schedule and its explanation become data that the scripts of the page read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import metrics
from ..core.operation import Operation, OpKind
from ..drawing.lanes import lane_count, lane_noun, lanes
from ..explain import Explanation, Idle, Phase, Reason, arrivals, legs
from ..kernels.arrays import Ints
from .blob import Blob, pack
from .entry import Entry

_LONGEST = 12  # number of idle intervals in the table of the page

Typed = tuple[str, NDArray[Any]]


def chart(entry: Entry, found: Explanation) -> tuple[dict[str, Any], Blob]:
    """Return what the page shows of a schedule.

    Parameters
    ----------
    entry
        A line of the summary table that has a schedule.
    found
        The explanation of the entry's schedule.

    Returns
    -------
    dict
        Numbers and tables as data for JSON, with the layout of the arrays.
    Blob
        The operations and the idle intervals as arrays.

    Notes
    -----
    The start of an operation is stored as the difference to the start of the operation before. The index of
    the operation for whose result an operation waits is stored as the difference to the operation's own
    index. Most of these differences repeat and therefore compress well.
    """
    blob = pack({**_operations(found), **_idle(found)})
    return {**_numbers(entry, found), "explanation": _explanation(found), "layout": blob.layout}, blob


def _numbers(entry: Entry, found: Explanation) -> dict[str, Any]:
    schedule, instance = found.schedule, found.schedule.instance
    deltas = [[instance.memory_delta(k, s) for s in range(instance.stages)] for k in OpKind]
    cost = metrics.cost(schedule)
    return {
        "label": entry.label,
        "cost": cost,
        "bubbleRate": metrics.bubble_rate(schedule),
        "bound": entry.bound,
        "gap": None if entry.bound is None else (cost - entry.bound) / cost,
        "offsets": schedule.order.offsets.tolist(),
        "lanes": lane_count(instance.placement),
        "laneNoun": lane_noun([instance.placement]),
        "delta": deltas if instance.memory is not None else None,
        "limit": [instance.memory_limit(d) for d in range(instance.devices)],
    }


def _operations(found: Explanation) -> dict[str, Typed]:
    """Return the arrays with one number per operation, and ``critical``, the critical path.

    ``linkWait`` has the ticks for which the input of an operation waits for a busy link, and ``transfer`` the
    ticks for which it is under way. ``sourceStep`` has the index of the operation that the input comes from,
    less the operation's own index, or 0 if there is none; see `Arrivals`. ``critical`` has the indices of the
    path's operations in the schedule's order.
    """
    schedule = found.schedule
    kind, stage, microbatch = schedule.order.operations.T
    inputs = arrivals(schedule)
    rows = np.arange(len(kind))
    return {
        "startStep": ("f8", np.diff(schedule.start, prepend=0)),
        "duration": ("f8", schedule.end - schedule.start),
        "linkWait": ("f8", inputs.left - inputs.ended),
        "transfer": ("f8", inputs.arrived - inputs.left),
        "sourceStep": ("i4", np.where(inputs.source < 0, 0, inputs.source - rows)),
        "microbatch": ("i4", microbatch),
        "stage": ("u2", stage),
        "kind": ("u1", kind),
        "lane": ("u1", lanes(schedule)),
        "joined": ("u1", schedule.order.pairs),
        "critical": ("i4", _rows(found, [step.operation for step in found.critical if step.runs])),
    }


def _rows(found: Explanation, operations: list[Operation | None]) -> Ints:
    """Return the index of each operation in the schedule's order; -1 for None."""
    order = found.schedule.order
    where = np.full((len(OpKind), found.schedule.instance.stages, found.schedule.instance.microbatches), -1)
    where[tuple(order.operations.T)] = np.arange(len(order))
    return np.array([-1 if op is None else where[op] for op in operations], np.int64)


def _idle(found: Explanation) -> dict[str, Typed]:
    """Return the arrays with one number per idle interval, sorted by device.

    Only ``idleOffsets`` has one number per device and one more: the index of each device's first interval,
    and at last the number of all intervals.
    """
    reasons, phases = list(Reason), list(Phase)
    first = np.cumsum([0, *np.bincount([i.device for i in found.idle], minlength=len(found.devices))])
    named = {f"idle{key.capitalize()}": key for key in ("next", "awaits", "ready", "frees")}
    return {
        "idleOffsets": ("i4", first),
        "idleStart": ("f8", np.array([i.start for i in found.idle], np.int64)),
        "idleTicks": ("f8", np.array([i.ticks for i in found.idle], np.int64)),
        "idleReason": ("u1", np.array([reasons.index(i.reason) for i in found.idle], np.int64)),
        "idlePhase": ("u1", np.array([phases.index(i.phase) for i in found.idle], np.int64)),
        **{name: ("i4", _rows(found, [getattr(i, key) for i in found.idle])) for name, key in named.items()},
    }


def _explanation(found: Explanation) -> dict[str, Any]:
    """Return the content of the tables beneath a chart."""
    longest = sorted(found.idle, key=lambda i: -i.ticks)[:_LONGEST]
    path = [
        {key: getattr(leg, key) for key in ("start", "ticks", "computing", "messages", "late", "devices")}
        | {"operations": str(leg)}
        for leg in legs(found.critical)
    ]
    return {
        "devices": [device.to_dict() for device in found.devices],
        "intervals": len(found.idle),
        "longest": [_interval(i) for i in longest],
        "path": path,
        "relaxations": [r.to_dict() for r in found.relaxations],
    }


def _interval(idle: Idle) -> dict[str, Any]:
    times = {"device": idle.device, "start": idle.start, "ticks": idle.ticks}
    return {**times, "phase": str(idle.phase), "reason": str(idle.reason), "text": str(idle)}
