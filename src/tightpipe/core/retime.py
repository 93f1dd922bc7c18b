"""Order -> start times that are optimal for the objective."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels.arrays import Ints
from .errors import InputError
from .instance import Instance, Objective
from .schedule import Order, Schedule
from .simulate import simulate

_NO_PATH = -(2**60)


def retime(instance: Instance, order: Order) -> Schedule:
    """Give the order the start times of least cost.

    For `makespan` the earliest times are optimal. For `device_span` a device's first operation may
    start later than it could, which shortens the device's span as long as nothing waits for it.
    Among the optimal times the earliest are returned.

    Raises
    ------
    DeadlockError, InputError
        As in `simulate`.

    Notes
    -----
    Let D[d, e] be the longest path from the start of the first operation of device d to the end of
    the last of e, and x the start times of the first operations. A span of at most T everywhere
    means x[e] >= x[d] + D[d, e] - T for all d, e: a system of difference constraints that has a
    solution exactly when no cycle of the p x p graph has mean weight D above T. The least integer T
    is thus the largest cycle mean, rounded up (Karp 1978).
    """
    earliest = simulate(instance, order)
    if not np.diff(order.offsets).all():
        raise InputError("the order has a device that runs nothing")
    if instance.objective is Objective.MAKESPAN:
        return earliest
    to_first, to_last = _longest_paths(instance, order, earliest)
    span = _largest_cycle_mean(to_last)
    firsts = earliest.start[order.offsets[:-1]]
    release = _least_potential(np.maximum(to_first, to_last - span), firsts)
    return simulate(instance, order, release)


def _longest_paths(instance: Instance, order: Order, earliest: Schedule) -> tuple[Ints, Ints]:
    """Return the longest paths from each first start to all first starts and to all last ends, (p, p)."""
    p = instance.devices
    horizon = int(earliest.end.max()) + 1
    to_first = np.full((p, p), _NO_PATH, np.int64)
    to_last = np.full((p, p), _NO_PATH, np.int64)
    firsts, lasts = order.offsets[:-1], order.offsets[1:] - 1
    for device in range(p):
        # delay one device by more than any slack: what moves by the whole delay follows from it alone
        delayed = np.zeros(p, np.int64)
        delayed[device] = horizon
        late = simulate(instance, order, delayed)
        follows = late.start[firsts] >= horizon
        to_first[device, follows] = late.start[firsts][follows] - horizon
        follows = late.end[lasts] > horizon
        to_last[device, follows] = late.end[lasts][follows] - horizon
    return to_first, to_last


def _largest_cycle_mean(weight: NDArray[np.int64]) -> int:
    """Return the largest mean weight of a cycle, rounded up."""
    p = len(weight)
    walks = np.zeros((p + 1, p), np.int64)  # walks[k, v]: heaviest walk of k edges that ends at v
    for k in range(p):
        walks[k + 1] = np.maximum((walks[k][:, None] + weight).max(axis=0), _NO_PATH)
    lengths = np.arange(p, 0, -1)
    means = -((walks[:p] - walks[p]) // lengths[:, None])  # ceil of (walks[p] - walks[k]) / (p - k)
    return int(means.min(axis=0).max())


def _least_potential(weight: NDArray[np.int64], floor: NDArray[np.int64]) -> Ints:
    """Return the least x >= floor with x[e] >= x[d] + weight[d, e] for all d, e."""
    x = floor
    for _ in range(len(weight) + 1):
        x = np.maximum(floor, (x[:, None] + weight).max(axis=0))
    return x
