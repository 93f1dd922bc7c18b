"""The figures that measure a schedule: cost, work, bubble, peak memory; memory counted in activations.

Memory limits are counted in activations, or as shares of the peak memory of 1F1B. With p devices, the limit
``k p`` means k times p forward activations of one stage, whatever the placement. A device of the V placement
holds two stages, each half as large as the one stage that a device of the linear placement holds. So 2p in
the V placement is about as much memory as 1p in the linear one, which is what 1F1B takes. Limits of two
placements can be compared as shares of the peak memory of 1F1B. Where microbatches differ, those count that
take the most memory, so that such a limit allows any sequence of the microbatches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels.arrays import Ints
from .costs import Objective, Step
from .instance import Instance
from .operation import OpKind
from .schedule import Schedule
from .simulate import memory_during


def device_spans(schedule: Schedule) -> NDArray[np.int64]:
    """Return the span (last end - first start) of each device in ticks, shape (devices,).

    The span of a device without operations is 0.
    """
    rows = [schedule.order.rows(d) for d in range(schedule.order.devices)]
    spans = [schedule.end[r].max() - schedule.start[r].min() if r.stop > r.start else 0 for r in rows]
    return np.array(spans, np.int64)


def cost(schedule: Schedule) -> int:
    """Return the cost of a schedule, in ticks: the value of its instance's objective."""
    if schedule.instance.objective is Objective.STEP:
        return int(finished(schedule).max())
    if schedule.instance.objective is Objective.MAKESPAN:
        return int(schedule.end.max() - schedule.start.min())
    return int(device_spans(schedule).max())


def costs(schedule: Schedule) -> dict[str, int]:
    """Return the cost of a schedule under each objective, in ticks.

    For `step` the whole schedule is delayed until no F starts before its stage is ready.
    """
    instance, operations = schedule.instance, schedule.order.operations
    found = {}
    for objective in Objective:
        other = replace(schedule, instance=replace(instance, objective=objective))
        step = other.instance.barrier
        if step is not None:
            late = np.array(step.ready)[operations[:, 1]] - schedule.start
            delay = max(0, int(late[operations[:, 0] == OpKind.F].max()))
            other = replace(other, start=schedule.start + delay, end=schedule.end + delay)
        found[str(objective)] = cost(other)
    return found


class Reduction(NamedTuple):
    """The reduction of the gradients of a stage on a device, with its begin and end in ticks."""

    device: int
    stage: int
    begin: int
    end: int


def reductions(schedule: Schedule) -> list[Reduction]:
    """Return the reductions that take time, device by device, for the objective `step`.

    A stage is reduced after its last operation on the device. Reductions run beside the operations, one stage
    after another, in the sequence in which the stages end. No other sequence ends earlier, as no reduction
    can begin before its stage ends.
    """
    order, step = schedule.order, schedule.instance.barrier
    found: list[Reduction] = []
    for device in range(order.devices if step is not None else 0):
        stage, end = order.operations[order.rows(device), 1], schedule.end[order.rows(device)]
        ended = {s: int(end[stage == s].max()) for s in set(stage.tolist())}
        found += [Reduction(device, *one) for one in reduced_in_turn(ended, step)]  # type: ignore[arg-type]
    return found


def reduced_in_turn(ended: Mapping[int, int], step: Step) -> Iterator[tuple[int, int, int]]:
    """Yield stage, begin and end of each reduction of a device that takes time.

    `ended` has the tick at which each of its stages ends.
    """
    free = 0
    for end, stage in sorted((end, stage) for stage, end in ended.items()):
        ticks = step.reduce[stage]  # type: ignore[index]  # expanded by the instance
        if ticks:
            begin, free = max(free, end), max(free, end) + ticks
            yield stage, begin, free


def finished(schedule: Schedule) -> Ints:
    """Return when each device has ended its operations, its reductions and its optimizer, shape (devices,).

    Reductions and optimizer count for the objective `step` only.
    """
    order, step = schedule.order, schedule.instance.barrier
    first = schedule.start.min(initial=0)  # when a device without operations has ended them
    done = np.array([schedule.end[order.rows(d)].max(initial=first) for d in range(order.devices)], np.int64)
    for reduction in reductions(schedule):
        done[reduction.device] = max(done[reduction.device], reduction.end)
    return done if step is None else np.asarray(done + np.array(step.optimizer))


@lru_cache(maxsize=16)
def works(instance: Instance) -> tuple[int, ...]:
    """Return the least time in which each device can run its operations, in ticks; see `Instance.work`."""
    return tuple(map(instance.work, range(instance.devices)))


def largest_work(instance: Instance) -> int:
    """Return the largest `Instance.work` of a device, in ticks: no schedule costs less."""
    return max(works(instance))


def busy_times(schedule: Schedule) -> NDArray[np.int64]:
    """Return how long each device computes, in ticks, shape (devices,).

    Where two operations run together, the time that they share counts once. Copies do not count.
    """
    order = schedule.order
    took = np.where((order.pairs == 1) | ~order.computes, 0, schedule.end - schedule.start)
    return np.array([took[order.rows(d)].sum() for d in range(order.devices)], np.int64)


def imbalance(times: Sequence[int] | NDArray[np.int64]) -> float:
    """Return how unevenly the work is spread over the devices: the largest work over the mean, minus 1.

    The bubble is the time beyond the largest work, so it does not show what uneven devices cost. A schedule
    without any bubble is slower by this share than one with the same work spread evenly.

    Parameters
    ----------
    times
        Ticks that each device computes: at least one entry, with a sum above 0. They are the `busy_times` of
        a schedule or the `works` of an instance.

    Returns
    -------
    float
        0 where all devices work equally long, at most the number of devices minus 1.
    """
    ticks = [int(time) for time in times]
    return max(ticks) * len(ticks) / sum(ticks) - 1


def busiest(times: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """Return the numbers of the devices that compute longest, in ascending order.

    `times` holds the ticks that each device computes, as for `imbalance`. If all devices compute equally
    long, the result has all of them.
    """
    return np.flatnonzero(np.asarray(times) == np.max(times)).tolist()


def bubble(schedule: Schedule) -> int:
    """Return the bubble in ticks: the cost minus the largest `Instance.work` of a device.

    Where the time of joint operations makes the busy times depend on the schedule, a cheaper schedule of the
    same instance so has a smaller bubble.
    """
    return cost(schedule) - largest_work(schedule.instance)


def bubble_rate(schedule: Schedule) -> float:
    """Return the bubble as a share of the cost, as defined by Qi et al., arXiv:2401.10241, section 5.3."""
    return bubble(schedule) / cost(schedule)


def total_time(schedule: Schedule) -> int:
    """Return the time from the first start to the last end over all devices, in ticks, for any objective."""
    return int(schedule.end.max() - schedule.start.min())


def bubble_over_ideal(schedule: Schedule) -> float:
    """Return (cost - ideal) / ideal, where the ideal is the mean busy time of the devices.

    Some papers call this figure the bubble rate. In this package, `bubble_rate` is the bubble as a share of
    the cost.
    """
    ideal = float(busy_times(schedule).mean())
    return (cost(schedule) - ideal) / ideal


def idle_times(schedule: Schedule) -> NDArray[np.int64]:
    """Return the span minus the busy time of each device, in ticks, shape (devices,)."""
    return np.asarray(device_spans(schedule) - busy_times(schedule))


def charged_windows(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return the interval in which the idle time of each device counts towards the cost.

    For `device_span` it reaches from the device's own first start to its last end; for `makespan` it reaches
    from the first start to the last end over all devices, and for `step` from tick 0 to the cost.

    Returns
    -------
    tuple of two arrays
        Begin and end of the interval in ticks, each of shape (devices,).
    """
    order = schedule.order
    if schedule.instance.whole:
        is_step = schedule.instance.objective is Objective.STEP
        times = (0, cost(schedule)) if is_step else (schedule.start.min(), schedule.end.max())
        return np.full(order.devices, times[0]), np.full(order.devices, times[1])
    rows = [order.rows(d) for d in range(order.devices)]
    first = np.array([schedule.start[r].min() for r in rows])
    return first, np.array([schedule.end[r].max() for r in rows])


def peak_memory(schedule: Schedule) -> NDArray[np.int64]:
    """Return the largest memory that each device holds, in the instance's unit, shape (devices,)."""
    trace = memory_during(schedule)
    rows = map(schedule.order.rows, range(schedule.order.devices))
    return np.array([trace[r].max(initial=0) for r in rows])


def limits_of_activations(instance: Instance, activations: int) -> tuple[int, ...]:
    """Return the memory of a number of forward activations of one stage, as a limit for each device.

    Parameters
    ----------
    instance
        The instance. It must have memory, because without it an activation has no size.
    activations
        Number of activations, at least 0. Where the stages of a device have unequal activations, the size of
        one is their mean. Only the limit itself is rounded down, so it is exact where the stages are equal.
        Where microbatches differ, these are the largest activations; if there are fewer, the smallest one
        counts again.

    Returns
    -------
    tuple of int
        One limit per device, in the instance's unit of memory.
    """
    held = [instance.placement.stages_on(device) for device in range(instance.devices)]
    each = instance.placement.stages_per_device
    return tuple(_largest(instance, stages, activations, each) // len(stages) for stages in held)


def memory_of_1f1b(instance: Instance) -> float | None:
    """Return the ratio of the largest memory limit to the peak memory that 1F1B takes for the same model.

    The 1F1B schedule has one stage on each device. So that it runs the same model, consecutive stages of the
    instance are joined until one stage per device is left. Device i of p then holds up to min(p - i, n)
    microbatches of its joined stage, where n is the number of microbatches of one iteration, and the peak is
    the largest memory of a device. For a V with equal stages the peak is min(p, n) times the activations of
    two stages. Where microbatches differ, a device is taken to hold those that take the most.

    Returns
    -------
    float or None
        1 where the limit equals the peak memory of 1F1B. None where the instance has no limit or its
        activations take no memory.
    """
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    known = [limit for limit in limits if limit is not None]
    peak = peak_of_1f1b(instance)
    return max(known) / peak if known and peak else None


def peak_of_1f1b(instance: Instance) -> int:
    """Return the largest memory of a device under 1F1B with one stage per device, as in `memory_of_1f1b`."""
    n = instance.microbatches // instance.iterations
    p, chunks = instance.devices, instance.placement.stages_per_device
    joined = [range(device * chunks, (device + 1) * chunks) for device in range(p)]
    return max(_largest(instance, stages, min(p - device, n)) for device, stages in enumerate(joined))


def _largest(instance: Instance, stages: Iterable[int], number: int, each: int = 1) -> int:
    """Return the memory of a number of activations, the largest first; of `stages` together each.

    Every microbatch has `each` of them. If there are fewer, the smallest one counts again.
    """
    held = list(stages)
    sizes = [
        sum(instance.memory_delta(OpKind.F, s, c) for s in held) for c in range(len(instance.class_counts))
    ]
    if instance.slices:  # a microbatch has an activation of each slice
        return number * sum(sizes) // len(instance.placement.routes)
    total = 0
    for size, count in sorted(zip(sizes, instance.class_counts, strict=True), reverse=True):
        taken = min(number, each * count)
        total, number = total + taken * size, number - taken
    return total + number * min(sizes)
