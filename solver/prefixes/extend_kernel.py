"""Prefixes of schedules, compiled: each is extended by one F or B, and dominated prefixes are dropped.

Operations are started in the sequence of their start times. W's are not started one by one. Before a device
starts an F or B, it runs as many pending W's as fit into the time since its previous F or B. If it runs more,
the F or B starts later.

Prefix a *dominates* prefix b if both have started equally many operations of each queue and a is nowhere
later than b:

- the last operation of a has started no later;
- each microbatch under way can go on no later;
- each device is free no later, after it has also run the W's that have run in b and not yet in a.

After these W's, whatever follows b can follow a at the same times.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled, compiled_inline

from .few_devices import FewDevices
from .table_kernel import COMPLETE, FREE, FULL, LAST, NEVER, ROWS, Table, keep_new_row


@compiled
def extend(problem: FewDevices, before: Table, begin: int, end: int, after: Table) -> int:
    """Extend the rows `begin` to `end` - 1 of `before` by one operation in every way.

    The new prefixes are added to the table `after`. Rows that another row dominates are passed over.

    Returns
    -------
    int
        The number of rows of the table `after`, or `FULL` if it has no room for another row.
    """
    for row in range(begin, end):
        if before.alive[row]:
            for queue in range(len(problem.device)):
                if _is_next(problem, before, row, queue) and not _extend_by(
                    problem, before, row, queue, after
                ):
                    return FULL
    return int(after.counter[ROWS])


@compiled_inline
def _is_next(problem: FewDevices, before: Table, row: int, queue: int) -> bool:
    """Return whether the queue has an item left whose predecessor on the path has started."""
    started = before.started[row]
    if started[queue] >= problem.latest.shape[1]:
        return False
    return bool(queue == 0 or started[queue - 1] > started[queue])


@compiled_inline
def _soonest(problem: FewDevices, before: Table, row: int, queue: int) -> int:
    """Return the least start in ticks of the next item of a queue, if the device runs no W before it."""
    rank, devices = before.started[row, queue], len(problem.weight)
    times = before.times[row]
    soonest = max(times[LAST], times[FREE + problem.device[queue]], problem.earliest[queue, rank])
    if queue > 0:
        soonest = max(soonest, times[FREE + 2 * devices + rank % (len(times) - FREE - 2 * devices)])
    return int(soonest)


@compiled
def _extend_by(problem: FewDevices, before: Table, row: int, queue: int, after: Table) -> bool:
    """Add the prefixes in which the next item of the queue starts after each possible number of W's.

    Return False if the table has no room for them.
    """
    device, rank = problem.device[queue], before.started[row, queue]
    soonest = _soonest(problem, before, row, queue)
    free = before.times[row, FREE + device]
    pending = before.times[row, FREE + len(problem.weight) + device]
    held, left = _memory_and_work(problem, before, row, device)
    gap_ends = _soonest_end(problem, before, row, queue)
    duration = problem.weight[device]
    fit = pending if duration == 0 else min(pending, max(0, soonest - free) // duration)
    for weights in range(fit, pending + 1):
        start = max(soonest, free + weights * duration)
        if start > problem.latest[queue, rank]:
            break
        memory = held + problem.delta[queue] - weights * problem.freed[device]
        too_much = problem.delta[queue] > 0 and memory > problem.limit[device]
        too_late = start - weights * duration + left > problem.begin[device] + problem.horizon
        idle = gap_ends + weights * duration <= start
        if not (too_much or too_late or idle):
            if not _all_in_time(problem, before, row, queue, start):
                break
            _make(problem, before, row, queue, weights, start, after)
            if not keep_new_row(after, problem.weight, row, queue):
                return False
            _look_whether_complete(problem, after)
            if start == free + weights * duration:
                break  # a prefix with one W more before the item is dominated: that W can run after the item
    return True


@compiled_inline
def _memory_and_work(problem: FewDevices, before: Table, row: int, device: int) -> tuple[int, int]:
    """Return the memory that the device holds, and the ticks of the work that it has not started."""
    held, left, backwards = 0, 0, 0
    pending = before.times[row, FREE + len(problem.weight) + device]
    for k in range(problem.on.shape[1]):
        queue = problem.on[device, k]
        if queue >= 0:
            started, rest = before.started[row, queue], problem.latest.shape[1] - before.started[row, queue]
            held += problem.delta[queue] * started
            left += problem.duration[queue] * rest
            if problem.backward[queue]:
                backwards += started
                left += problem.weight[device] * rest
    return held - problem.freed[device] * (backwards - pending), left + problem.weight[device] * pending


@compiled_inline
def _soonest_end(problem: FewDevices, before: Table, row: int, queue: int) -> int:
    """Return the least end of an operation of the device that could run before the given queue's next item.

    Only operations that take no memory count. If such an operation fits into the idle time before the item,
    the caller drops the prefix, because a schedule that runs the operation in this time is at least as good.
    """
    device, end = problem.device[queue], NEVER
    for k in range(problem.on.shape[1]):
        other = problem.on[device, k]
        if (
            other >= 0
            and other != queue
            and problem.delta[other] <= 0
            and _is_next(problem, before, row, other)
        ):
            end = min(end, _soonest(problem, before, row, other) + problem.duration[other])
    return end


@compiled_inline
def _all_in_time(problem: FewDevices, before: Table, row: int, queue: int, start: int) -> bool:
    """Return False if the next item of some queue is surely too late for its window.

    The next item of `queue` is supposed to start at tick `start`.
    """
    rank, device, end = before.started[row, queue], problem.device[queue], start + problem.duration[queue]
    if queue + 1 < len(problem.device) and end + problem.lag[queue] > problem.latest[queue + 1, rank]:
        return False
    for other in range(len(problem.device)):
        first = before.started[row, other] + (1 if other == queue else 0)
        if first < problem.latest.shape[1]:
            soonest = end if problem.device[other] == device else start
            if soonest > problem.latest[other, first]:
                return False
    return True


@compiled_inline
def _make(
    problem: FewDevices, before: Table, row: int, queue: int, weights: int, start: int, after: Table
) -> None:
    """Write into the new row the prefix in which the queue's next item starts after `weights` W's."""
    started, times, device = after.new_started, after.new_times, problem.device[queue]
    devices, end = len(problem.weight), start + problem.duration[queue]
    for q in range(len(started)):
        started[q] = before.started[row, q]
    started[queue] += 1
    times[LAST] = start
    for d in range(devices):
        free, pending = before.times[row, FREE + d], before.times[row, FREE + devices + d]
        if d == device:
            free, pending = end, pending - weights + problem.backward[queue]
        elif free < start:
            # No F or B starts on this device before `start`, so it first runs the W's that can end by then.
            length = problem.weight[d]
            fit = pending if length == 0 else min(pending, (start - free) // length)
            free, pending = free + fit * length, pending - fit
            if pending == 0:
                free = start
        times[FREE + d], times[FREE + devices + d] = free, pending
    _make_arrivals(problem, before, row, queue, end, after)


@compiled_inline
def _make_arrivals(problem: FewDevices, before: Table, row: int, queue: int, end: int, after: Table) -> None:
    """Write into the new row the tick from which each microbatch under way can start its next operation."""
    started, times, devices = after.new_started, after.new_times, len(problem.weight)
    arrivals, moved = FREE + 2 * devices, before.started[row, queue]
    width = len(times) - arrivals
    for column in range(arrivals, len(times)):
        times[column] = 0
    following = len(started) - 1
    for microbatch in range(started[len(started) - 1], started[0]):
        while started[following - 1] <= microbatch:
            following -= 1
        arrival = before.times[row, arrivals + microbatch % width]
        if microbatch == moved:
            arrival = end + problem.lag[queue]
        arrival = max(arrival, times[LAST], times[FREE + problem.device[following]])
        times[arrivals + microbatch % width] = max(arrival, problem.earliest[following, microbatch])


@compiled_inline
def _look_whether_complete(problem: FewDevices, after: Table) -> None:
    """If the new row has started everything, note the least cost that it allows."""
    started, times, devices = after.new_started, after.new_times, len(problem.weight)
    if started[len(started) - 1] == problem.latest.shape[1]:
        cost = 0
        for d in range(devices):
            end = times[FREE + d] + problem.weight[d] * times[FREE + devices + d]
            cost = max(cost, end - problem.begin[d])
        after.counter[COMPLETE] = min(after.counter[COMPLETE], cost)
