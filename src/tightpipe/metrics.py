"""What a schedule costs and where it idles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .instance import Instance, Objective
from .schedule import Ints, Schedule
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


def largest_work(instance: Instance) -> int:
    """Return the largest sum of durations on a device, in ticks: no schedule costs less."""
    return max(instance.work(d) for d in range(instance.devices))


def busy_times(schedule: Schedule) -> NDArray[np.int64]:
    """Return how long each device computes, shape (devices,), in ticks; a pair counts once."""
    order = schedule.order
    took = np.where(order.pairs == 1, 0, schedule.end - schedule.start)
    return np.array([took[order.rows(d)].sum() for d in range(order.devices)], np.int64)


def work(schedule: Schedule) -> int:
    """Return the largest busy time of a device, in ticks: `largest_work` unless operations overlap."""
    return int(busy_times(schedule).max())


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
