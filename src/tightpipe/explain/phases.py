"""The phases of a device: warm-up, steady, cool-down."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from ..core.operation import OpKind
from ..core.schedule import Schedule
from ..kernels.arrays import Ints


class Phase(StrEnum):
    """Where in a device's work a time lies."""

    WARM_UP = "warm-up"  #: until the device's first B or BW starts
    STEADY = "steady"  #: between the two
    COOL_DOWN = "cool-down"  #: from the end of its last F on, but not before its first B


def borders(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return the end of each device's warm-up and the start of its cool-down, each (devices,), in ticks."""
    kind = schedule.order.operations[:, 0]
    warm, cool = [], []
    for device in range(schedule.order.devices):
        rows = schedule.order.rows(device)
        backward = (kind[rows] == OpKind.B) | (kind[rows] == OpKind.BW)
        warm.append(schedule.start[rows][backward].min())
        cool.append(max(warm[-1], schedule.end[rows][kind[rows] == OpKind.F].max()))
    return np.array(warm), np.array(cool)


def phase(start: int, end: int, warm: int, cool: int) -> Phase:
    """Return the phase of an idle interval; none reaches over a border, as an operation is at each."""
    if end <= warm:
        return Phase.WARM_UP
    return Phase.COOL_DOWN if start >= cool else Phase.STEADY
