"""The phases of a device: its warm-up, its steady state and its cool-down."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from ..core.operation import OpKind
from ..core.schedule import Schedule
from ..kernels.arrays import Ints


class Phase(StrEnum):
    """Part of the time in which a device works."""

    WARM_UP = "warm-up"  #: until the device's first B or BW starts
    STEADY = "steady"  #: between warm-up and cool-down
    COOL_DOWN = "cool-down"  #: from the end of the device's last F on, but not before its first B or BW


def borders(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return when the warm-up of each device ends and its cool-down begins: two arrays of shape (devices,).

    Times are in ticks. The warm-up of a device that runs F's alone ends with its last one.
    """
    kind = schedule.order.operations[:, 0]
    warm, cool = [], []
    for device in range(schedule.order.devices):
        rows = schedule.order.rows(device)
        backward = kind[rows] != OpKind.F
        warm.append(schedule.start[rows][backward].min(initial=schedule.end[rows].max()))
        cool.append(max(warm[-1], schedule.end[rows][kind[rows] == OpKind.F].max()))
    return np.array(warm), np.array(cool)


def phase(start: int, end: int, warm: int, cool: int) -> Phase:
    """Return the phase in which an idle interval from `start` to `end` lies; all times are in ticks.

    `warm` is when the warm-up of the device ends, and `cool` when its cool-down begins, as in `borders`. No
    idle interval reaches over the border of two phases, because an operation starts or ends there.
    """
    if end <= warm:
        return Phase.WARM_UP
    return Phase.COOL_DOWN if start >= cool else Phase.STEADY
