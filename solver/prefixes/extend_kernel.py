"""Prefixes of schedules, compiled: each is extended by one F or B, and dominated prefixes are dropped.

Operations are started in the sequence of their start times, whatever the class of their microbatches. W's are
not started one by one. Before a device starts an F or B, it runs as many pending W's as fit into the time
since its previous F or B. If it runs more, the F or B starts later.

Prefix a *dominates* prefix b if both have started equally many operations of each queue and a is nowhere
later than b:

- the last operation of a has started no later;
- each microbatch under way can go on no later;
- each device is free no later, after it has also run the W's that have run in b and not yet in a.

After these W's, whatever follows b can follow a at the same times.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled, compiled_inline
from tightpipe.model.graph import NO_LIMIT

from .few_devices import FewDevices
from .table_kernel import COMPLETE, FREE, FULL, LAST, ROWS, Table, keep_new_row


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
            for queue in range(len(problem.queues)):
                if _is_next(problem, before, row, queue) and not _extend_by(
                    problem, before, row, queue, after
                ):
                    return FULL
    return int(after.counter[ROWS])


@compiled_inline
def _is_next(problem: FewDevices, before: Table, row: int, queue: int) -> bool:
    """Return whether the queue has an item left whose predecessor on the path has started."""
    started, mine = before.started[row], problem.queues[queue]
    if started[queue] >= mine.count:
        return False
    return bool(queue == problem.paths[mine.path].begin or started[queue - 1] > started[queue])


@compiled_inline
def _soonest(problem: FewDevices, before: Table, row: int, queue: int) -> int:
    """Return the least start in ticks of the next item of a queue, if the device runs no W before it."""
    rank, mine = before.started[row, queue], problem.queues[queue]
    times, path = before.times[row], problem.paths[mine.path]
    soonest = max(times[LAST], times[FREE + mine.device], problem.earliest[queue, rank])
    if queue > path.begin:
        soonest = max(soonest, times[path.column + rank % path.columns])
    return int(soonest)


@compiled
def _extend_by(problem: FewDevices, before: Table, row: int, queue: int, after: Table) -> bool:
    """Add the prefixes in which the next item of the queue starts after each possible number of W's.

    Return False if the table has no room for them.
    """
    mine, rank = problem.queues[queue], before.started[row, queue]
    device = problem.devices[mine.device]
    soonest = _soonest(problem, before, row, queue)
    free = before.times[row, FREE + mine.device]
    pending = before.times[row, FREE + len(problem.devices) + mine.device]
    held, left = _memory_and_work(problem, before, row, mine.device)
    gap_ends = _soonest_end(problem, before, row, queue)
    duration = device.weight
    fit = pending if duration == 0 else min(pending, max(0, soonest - free) // duration)
    for weights in range(fit, pending + 1):
        start = max(soonest, free + weights * duration)
        if start > problem.latest[queue, rank]:
            break
        memory = held + mine.delta - weights * device.freed
        too_much = mine.delta > 0 and memory > device.limit
        too_late = start - weights * duration + left > device.begin + problem.horizon
        idle = gap_ends + weights * duration <= start
        if not (too_much or too_late or idle):
            if not _all_in_time(problem, before, row, queue, start):
                break
            _make(problem, before, row, queue, weights, start, after)
            if not keep_new_row(after, problem.devices, row, queue):
                return False
            _look_whether_complete(problem, after)
            if start == free + weights * duration:
                break  # a prefix with one W more before the item is dominated: that W can run after the item
    return True


@compiled_inline
def _memory_and_work(problem: FewDevices, before: Table, row: int, device: int) -> tuple[int, int]:
    """Return the memory that the device holds, and the ticks of the work that it has not started."""
    held, left, backwards, mine = 0, 0, 0, problem.devices[device]
    pending = before.times[row, FREE + len(problem.devices) + device]
    for k in range(problem.on.shape[1]):
        queue = problem.on[device, k]
        if queue >= 0:
            this, started = problem.queues[queue], before.started[row, queue]
            held += this.delta * started
            left += this.duration * (this.count - started)
            if this.backward:
                backwards += started
                left += mine.weight * (this.count - started)
    return held - mine.freed * (backwards - pending), left + mine.weight * pending


@compiled_inline
def _soonest_end(problem: FewDevices, before: Table, row: int, queue: int) -> int:
    """Return the least end of an operation of the device that could run before the given queue's next item.

    Only operations that take no memory count. If such an operation fits into the idle time before the item,
    the caller drops the prefix, because a schedule that runs the operation in this time is at least as good.
    """
    device, end = problem.queues[queue].device, NO_LIMIT
    for k in range(problem.on.shape[1]):
        other = problem.on[device, k]
        if (
            other >= 0
            and other != queue
            and problem.queues[other].delta <= 0
            and _is_next(problem, before, row, other)
        ):
            end = min(end, _soonest(problem, before, row, other) + problem.queues[other].duration)
    return end


@compiled_inline
def _all_in_time(problem: FewDevices, before: Table, row: int, queue: int, start: int) -> bool:
    """Return False if the next item of some queue is surely too late for its window.

    The next item of `queue` is supposed to start at tick `start`.
    """
    rank, mine = before.started[row, queue], problem.queues[queue]
    end, following = start + mine.duration, queue + 1
    if following < problem.paths[mine.path].end and end + mine.lag > problem.latest[following, rank]:
        return False
    for other in range(len(problem.queues)):
        first = before.started[row, other] + (1 if other == queue else 0)
        if first < problem.queues[other].count:
            soonest = end if problem.queues[other].device == mine.device else start
            if soonest > problem.latest[other, first]:
                return False
    return True


@compiled_inline
def _make(
    problem: FewDevices, before: Table, row: int, queue: int, weights: int, start: int, after: Table
) -> None:
    """Write into the new row the prefix in which the queue's next item starts after `weights` W's."""
    started, times, mine = after.new_started, after.new_times, problem.queues[queue]
    devices, end = len(problem.devices), start + mine.duration
    for q in range(len(started)):
        started[q] = before.started[row, q]
    started[queue] += 1
    times[LAST] = start
    for d in range(devices):
        free, pending = before.times[row, FREE + d], before.times[row, FREE + devices + d]
        if d == mine.device:
            free, pending = end, pending - weights + mine.backward
        elif free < start:
            # No F or B starts on this device before `start`, so it first runs the W's that can end by then.
            length = problem.devices[d].weight
            fit = pending if length == 0 else min(pending, (start - free) // length)
            free, pending = free + fit * length, pending - fit
            if pending == 0:
                free = start
        times[FREE + d], times[FREE + devices + d] = free, pending
    for column in range(FREE + 2 * devices, len(times)):
        times[column] = start
    for path in range(len(problem.paths)):
        _make_arrivals(problem, before, row, queue, path, end, after)


@compiled_inline
def _make_arrivals(
    problem: FewDevices, before: Table, row: int, queue: int, path: int, end: int, after: Table
) -> None:
    """Write into the new row when each microbatch under way on a path can start its next operation.

    The last operation is the next item of `queue`, and ends at tick `end`.
    """
    started, times, mine = after.new_started, after.new_times, problem.paths[path]
    moved = before.started[row, queue] if problem.queues[queue].path == path else -1
    following = mine.end - 1
    for microbatch in range(started[mine.end - 1], started[mine.begin]):
        while started[following - 1] <= microbatch:
            following -= 1
        column = mine.column + microbatch % mine.columns
        arrival = before.times[row, column]
        if microbatch == moved:
            arrival = end + problem.queues[queue].lag
        arrival = max(arrival, times[LAST], times[FREE + problem.queues[following].device])
        times[column] = max(arrival, problem.earliest[following, microbatch])


@compiled_inline
def _look_whether_complete(problem: FewDevices, after: Table) -> None:
    """If the new row has started everything, note the least cost that it allows."""
    started, times, devices = after.new_started, after.new_times, len(problem.devices)
    for path in range(len(problem.paths)):
        last = problem.paths[path].end - 1
        if started[last] < problem.queues[last].count:
            return
    cost = 0
    for d in range(devices):
        end = times[FREE + d] + problem.devices[d].weight * times[FREE + devices + d]
        cost = max(cost, end - problem.devices[d].begin)
    after.counter[COMPLETE] = min(after.counter[COMPLETE], cost)
