"""What a schedule costs and where it idles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels.arrays import Ints
from .instance import Instance, Objective
from .schedule import Schedule
from .simulate import memory_trace


def device_spans(schedule: Schedule) -> NDArray[np.int64]:
    """Return last end - first start of each device, shape (devices,), in ticks; 0 where nothing runs."""
    rows = [schedule.order.rows(d) for d in range(schedule.order.devices)]
    spans = [schedule.end[r].max() - schedule.start[r].min() if r.stop > r.start else 0 for r in rows]
    return np.array(spans, np.int64)


def cost(schedule: Schedule) -> int:
    """Return the value of the instance's objective, in ticks."""
    if schedule.instance.objective is Objective.MAKESPAN:
        return int(schedule.end.max() - schedule.start.min())
    return int(device_spans(schedule).max())


def works(instance: Instance) -> list[int]:
    """Return the least ticks that each device computes: the sum of its durations where none overlap."""
    return [instance.work(device) for device in range(instance.devices)]


def largest_work(instance: Instance) -> int:
    """Return the largest sum of durations on a device, in ticks: no schedule costs less."""
    return max(works(instance))


def busy_times(schedule: Schedule) -> NDArray[np.int64]:
    """Return how long each device computes, shape (devices,), in ticks; a pair counts once."""
    order = schedule.order
    took = np.where(order.pairs == 1, 0, schedule.end - schedule.start)
    return np.array([took[order.rows(d)].sum() for d in range(order.devices)], np.int64)


def work(schedule: Schedule) -> int:
    """Return the largest busy time of a device, in ticks: `largest_work` unless operations overlap."""
    return int(busy_times(schedule).max())


def imbalance(times: Sequence[int] | NDArray[np.int64]) -> float:
    """Return how uneven the work of the devices is: the largest over the mean, minus 1.

    The bubble is measured from the largest work, so that it does not tell what uneven devices cost: a
    schedule without any bubble is slower by this share than it could be with the same work spread evenly.

    Parameters
    ----------
    times
        Ticks that each device computes, at least one entry, their sum above 0: `busy_times` of a
        schedule, in which a pair of operations that overlap counts once, or `works` of an instance.

    Returns
    -------
    float
        0 where all devices work alike, at most the number of devices minus 1.
    """
    ticks = [int(time) for time in times]
    return max(ticks) * len(ticks) / sum(ticks) - 1


def busiest(times: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """Return the devices with the largest of these times, ascending: all of them where work is even."""
    return np.flatnonzero(np.asarray(times) == np.max(times)).tolist()


def bubble(schedule: Schedule) -> int:
    """Return cost - work, in ticks."""
    return cost(schedule) - work(schedule)


def bubble_rate(schedule: Schedule) -> float:
    """Return bubble / cost (Qi et al., arXiv:2401.10241, section 5.3)."""
    return bubble(schedule) / cost(schedule)


def total_time(schedule: Schedule) -> int:
    """Return last end - first start over all devices, in ticks, whatever the objective."""
    return int(schedule.end.max() - schedule.start.min())


def bubble_over_ideal(schedule: Schedule) -> float:
    """Return (cost - ideal) / ideal with the devices' mean busy time as ideal: the other rate in use."""
    ideal = float(busy_times(schedule).mean())
    return (cost(schedule) - ideal) / ideal


def idle_times(schedule: Schedule) -> NDArray[np.int64]:
    """Return each device's span minus its busy time, shape (devices,), in ticks."""
    return np.asarray(device_spans(schedule) - busy_times(schedule))


def charged_windows(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return from when to when each device's idle time counts, two arrays of shape (devices,), in ticks.

    From a device's first start to its last end for `device_span`, the schedule's for `makespan`.
    """
    order = schedule.order
    if schedule.instance.objective is Objective.MAKESPAN:
        times = schedule.start.min(), schedule.end.max()
        return np.full(order.devices, times[0]), np.full(order.devices, times[1])
    rows = [order.rows(d) for d in range(order.devices)]
    first = np.array([schedule.start[r].min() for r in rows])
    return first, np.array([schedule.end[r].max() for r in rows])


def peak_memory(schedule: Schedule) -> NDArray[np.int64]:
    """Return each device's largest memory, shape (devices,), in the instance's unit."""
    trace = memory_trace(schedule.instance, schedule.order)
    rows = map(schedule.order.rows, range(schedule.order.devices))
    return np.array([trace[r].max(initial=0) for r in rows])
