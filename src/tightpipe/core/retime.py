"""Start times that are optimal for a given order and the instance's objective."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels.arrays import Ints
from .errors import InputError
from .instance import Instance
from .paths_kernel import NO_PATH
from .schedule import Order, Schedule
from .simulate import Simulation


def retime(instance: Instance, order: Order) -> Schedule:
    """Return the schedule of least cost that runs the given order.

    For `makespan` and `step` the earliest start times are optimal. For `device_span` it can be better that a
    device begins later than it could: this shortens the device's span, unless its last end moves by as many
    ticks.
    Among the optimal start times, the earliest are returned.

    Raises
    ------
    DeadlockError, InputError
        As in `simulate`.

    Notes
    -----
    Let D[d, e] be the longest path from the start of the first operation of device d to the end of the last
    operation of device e, and let x[d] be the start time of the first operation of device d. All spans are at
    most T if and only if x[e] >= x[d] + D[d, e] - T for all d and e. This system of difference constraints
    has a solution exactly when no cycle has a mean weight above T in the complete graph on the devices with
    loops, where the edge from d to e has the weight D[d, e]. The least integer T is thus the largest mean
    weight of a cycle, rounded up (Karp 1978).
    """
    simulation = Simulation(instance, order)
    earliest, sequence = simulation.run_in_sequence(np.zeros(instance.devices, np.int64))
    if not np.diff(order.offsets).all():
        raise InputError("the order has a device that runs nothing")
    if instance.whole:
        return earliest
    least = _begin_distances(simulation, sequence)
    return simulation.run(_least_potential(least, earliest.start[order.offsets[:-1]]))


def begin_distances(instance: Instance, order: Order) -> Ints:
    """Return lower bounds on the time between the begins of devices in all cheapest schedules of an order.

    Parameters
    ----------
    instance
        An instance whose objective is `device_span`.
    order
        A complete order in which every device runs something.

    Returns
    -------
    Ints
        Ticks, shape (devices, devices): device e begins at least entry [d, e] ticks after d. The entry is
        negative where e may begin before d, and 0 on the diagonal.

    Raises
    ------
    DeadlockError, InputError
        As in `simulate`.
    """
    simulation = Simulation(instance, order)
    _, sequence = simulation.run_in_sequence(np.zeros(instance.devices, np.int64))
    return _begin_distances(simulation, sequence)


def _begin_distances(simulation: Simulation, sequence: Ints) -> Ints:
    to_first, to_last = simulation.longest_paths(sequence)
    least = np.maximum(to_first, to_last - _largest_cycle_mean(to_last))
    np.fill_diagonal(least, 0)
    return least


def _largest_cycle_mean(weight: NDArray[np.int64]) -> int:
    """Return the largest mean weight of a cycle in ticks, rounded up (Karp 1978)."""
    p = len(weight)
    walks = np.zeros((p + 1, p), np.int64)  # walks[k, v]: heaviest walk of k edges that ends at v
    for k in range(p):
        walks[k + 1] = np.maximum((walks[k][:, None] + weight).max(axis=0), NO_PATH)
    lengths = np.arange(p, 0, -1)
    means = -((walks[:p] - walks[p]) // lengths[:, None])  # ceil of (walks[p] - walks[k]) / (p - k)
    return int(means.min(axis=0).max())


def _least_potential(weight: NDArray[np.int64], floor: NDArray[np.int64]) -> Ints:
    """Return the least vector x >= floor with x[e] >= x[d] + weight[d, e] for all d and e, in ticks."""
    x = floor
    for _ in range(len(weight) + 1):
        x = np.maximum(floor, (x[:, None] + weight).max(axis=0))
    return x
