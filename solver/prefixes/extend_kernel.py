"""Prefixes of schedules, compiled: each is extended by one F or B, and dominated prefixes are dropped.

Operations are started in the sequence of their start times, whatever the class of their microbatches. W's are
not started one by one. Before a device starts an F or B, it runs as many pending W's as fit into the time
since its previous F or B. If it runs more, the F or B starts later.

A B may start as a fused backward, which leaves no W pending, and an F together with a fused backward. Such a
pair is two operations, so it extends the prefixes with two operations less.

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
from .table_kernel import ALONE, COMPLETE, COST, FREE, FULL, LAST, ROWS, Table, keep_new_row


@compiled
def extend(problem: FewDevices, before: Table, begin: int, end: int, after: Table) -> int:
    """Extend the rows `begin` to `end` - 1 of `before` by one F or B in every way.

    The new prefixes are added to the table `after`. Rows that another row dominates are passed over. Return
    the number of rows of the table `after`, or `FULL` if it has no room for another row.
    """
    for row in range(begin, end):
        if before.alive[row]:
            for queue in range(len(problem.queues)):
                if _is_next(problem, before, row, queue) and not (
                    _extend_by(problem, before, row, queue, ALONE, after)
                    and (
                        problem.queues[queue].fused == 0
                        or _extend_by(problem, before, row, queue, queue, after)
                    )
                ):
                    return FULL
    return int(after.counter[ROWS])


@compiled
def extend_by_pairs(problem: FewDevices, before: Table, begin: int, end: int, after: Table) -> int:
    """Extend the rows `begin` to `end` - 1 of `before` by one pair in every way, otherwise like `extend`."""
    for row in range(begin, end):
        if before.alive[row]:
            for queue in range(len(problem.queues)):
                if not _is_next(problem, before, row, queue):
                    continue
                for partner in range(len(problem.queues)):
                    if (
                        problem.together[queue, partner] > 0
                        and _is_next(problem, before, row, partner)
                        and not _extend_by(problem, before, row, queue, partner, after)
                    ):
                        return FULL
    return int(after.counter[ROWS])


@compiled_inline
def _is_next(problem: FewDevices, before: Table, row: int, queue: int) -> bool:
    """Return whether the queue has an item left whose predecessor on the path has started.

    Of slices, the one that it follows at its stage has started, too. Before the first item after a flush, all
    others of the device before that flush have to start.
    """
    started, mine = before.started[row], problem.queues[queue]
    if started[queue] >= mine.count:
        return False
    if mine.ahead >= 0 and started[mine.ahead] <= started[queue]:
        return False
    flushed = started[queue] // mine.round
    for k in range(problem.on.shape[1] if flushed > 0 else 0):
        other = problem.on[mine.device, k]
        if other >= 0 and started[other] < flushed * problem.queues[other].round:
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


@compiled_inline
def _ticks(problem: FewDevices, queue: int, partner: int) -> int:
    """Return the ticks of an item of a queue that runs with an item of the queue `partner`, or alone."""
    if partner == ALONE:
        return int(problem.queues[queue].duration)
    return int(problem.queues[queue].fused if partner == queue else problem.together[queue, partner])


@compiled
def _extend_by(problem: FewDevices, before: Table, row: int, queue: int, partner: int, after: Table) -> bool:
    """Add the prefixes in which the next item of the queue starts after each possible number of W's.

    It runs jointly with the next item of the queue `partner`, unless that is `ALONE`. Return False if the
    table has no room for the prefixes.
    """
    mine = problem.queues[queue]
    device = problem.devices[mine.device]
    soonest = _soonest(problem, before, row, queue)
    latest = problem.latest[queue, before.started[row, queue]]
    if partner >= 0 and partner != queue:
        soonest = max(soonest, _soonest(problem, before, row, partner))
        latest = min(latest, problem.latest[partner, before.started[row, partner]])
    free = before.times[row, FREE + mine.device]
    pending = before.times[row, FREE + len(problem.devices) + mine.device]
    held, left = _memory_and_work(problem, before, row, mine.device)
    gap_ends = _soonest_end(problem, before, row, queue)
    duration = device.weight
    fit = pending if duration == 0 else min(pending, max(0, soonest - free) // duration)
    if pending > 0 and _is_flushed(problem, before, row, mine.device):
        fit, gap_ends = pending, NO_LIMIT
    for weights in range(fit, pending + 1):
        start = max(soonest, free + weights * duration)
        if start > latest:
            break
        taken = mine.delta + mine.passing
        too_much = taken > 0 and held + taken - weights * device.freed > device.limit
        too_late = start - weights * duration + left > device.begin + problem.horizon
        idle = gap_ends + weights * duration <= start
        if not (too_much or too_late or idle):
            if not _all_in_time(problem, before, row, queue, partner, start):
                break
            _make(problem, before, row, queue, partner, weights, start, after)
            after.new_times[COST] = _least_cost(problem, before, row, queue, start, latest)
            if not keep_new_row(after, problem.devices, row, queue, partner):
                return False
            _look_whether_complete(problem, after)
            if start == free + weights * duration:
                break  # a prefix with one W more before the item is dominated: that W can run after the item
    return True


@compiled_inline
def _least_cost(problem: FewDevices, before: Table, row: int, queue: int, start: int, latest: int) -> int:
    """Return the least cost of a schedule that starts the queue's next item at a tick, after the prefix.

    `latest` is the largest start of the item at a cost of the horizon.
    """
    known, device = before.times[row, COST], problem.queues[queue].device
    if problem.floor < NO_LIMIT:
        for k in range(problem.on.shape[1]):
            other = problem.on[device, k]
            if other >= 0 and before.started[row, other] > 0:
                return int(max(known, problem.horizon + start - latest))
    return int(known)


@compiled_inline
def _is_flushed(problem: FewDevices, before: Table, row: int, device: int) -> bool:
    """Return whether a flush follows what the device has started, before which all of its W's have to run."""
    flushed = -1
    for k in range(problem.on.shape[1]):
        queue = problem.on[device, k]
        if queue >= 0:
            started, between = before.started[row, queue], problem.queues[queue].round
            if started % between != 0 or flushed not in (-1, started // between):
                return False
            flushed = started // between
    return bool(flushed > 0)


@compiled_inline
def _memory_and_work(problem: FewDevices, before: Table, row: int, device: int) -> tuple[int, int]:
    """Return the memory that the device holds, and the least ticks of the work that it has not started."""
    held, left, backwards, mine = 0, 0, 0, problem.devices[device]
    forward, fusible = 0, 0
    pending = before.times[row, FREE + len(problem.devices) + device]
    for k in range(problem.on.shape[1]):
        queue = problem.on[device, k]
        if queue >= 0:
            this, started = problem.queues[queue], before.started[row, queue]
            held += this.delta * started
            left += this.least * (this.count - started)
            if this.leaves:
                backwards += started
                fusible += this.count - started
            elif not this.backward:
                forward += this.count - started
    left -= mine.saved * min(forward, fusible)
    return held - mine.freed * (backwards - pending), left + mine.weight * pending


@compiled_inline
def _soonest_end(problem: FewDevices, before: Table, row: int, queue: int) -> int:
    """Return the least end of an operation of the device that could run before the given queue's next item.

    Only operations that take no memory count, and such a B counts as a BW where that is not clearly enough
    (`moved`). If such an operation fits into the idle time before the item, the caller drops the prefix,
    because a schedule that runs the operation in this time is at least as good.
    """
    device, end = problem.queues[queue].device, NO_LIMIT
    for k in range(problem.on.shape[1]):
        other = problem.on[device, k]
        if (
            other >= 0
            and other != queue
            and problem.queues[other].moved < NO_LIMIT
            and _is_next(problem, before, row, other)
        ):
            end = min(end, _soonest(problem, before, row, other) + problem.queues[other].moved)
    return end


@compiled_inline
def _all_in_time(problem: FewDevices, before: Table, row: int, queue: int, partner: int, start: int) -> bool:
    """Return False if some queue's next item is surely late once that of `queue` starts at tick `start`."""
    mine = problem.queues[queue]
    end = start + _ticks(problem, queue, partner)
    if not _is_followed_in_time(problem, before, row, queue, end):
        return False
    if partner >= 0 and not _is_followed_in_time(problem, before, row, partner, end):
        return False
    for other in range(len(problem.queues)):
        first = before.started[row, other] + (1 if other in (queue, partner) else 0)
        if first < problem.queues[other].count:
            soonest = end if problem.queues[other].device == mine.device else start
            if soonest > problem.latest[other, first]:
                return False
    return True


@compiled_inline
def _is_followed_in_time(problem: FewDevices, before: Table, row: int, queue: int, end: int) -> bool:
    """Return whether what follows the queue's next item on its path can be in time if that ends at `end`."""
    mine, following = problem.queues[queue], queue + 1
    if following >= problem.paths[mine.path].end:
        return True
    return bool(end + mine.lag <= problem.latest[following, before.started[row, queue]])


@compiled_inline
def _make(
    problem: FewDevices,
    before: Table,
    row: int,
    queue: int,
    partner: int,
    weights: int,
    start: int,
    after: Table,
) -> None:
    """Write into the new row the prefix in which the queue's next item starts after `weights` W's."""
    started, times, mine = after.new_started, after.new_times, problem.queues[queue]
    devices, end = len(problem.devices), start + _ticks(problem, queue, partner)
    for q in range(len(started)):
        started[q] = before.started[row, q]
    started[queue] += 1
    if partner >= 0 and partner != queue:
        started[partner] += 1
    left = mine.leaves if partner == ALONE else 0
    times[LAST] = start
    for d in range(devices):
        free, pending = before.times[row, FREE + d], before.times[row, FREE + devices + d]
        if d == mine.device:
            free, pending = end, pending - weights + left
        elif free < start:
            # No F or B starts on this device before `start`, so it first runs the W's that can end by then.
            length = problem.devices[d].weight
            fit = pending if length == 0 else min(pending, (start - free) // length)
            free, pending = free + fit * length, pending - fit
            if pending == 0 and _has_left(problem, after, d):
                free = start
        times[FREE + d], times[FREE + devices + d] = free, pending
    for column in range(FREE + 2 * devices, len(times)):
        times[column] = start
    for path in range(len(problem.paths)):
        _make_arrivals(problem, before, row, queue, partner, path, end, after)


@compiled_inline
def _has_left(problem: FewDevices, after: Table, device: int) -> bool:
    """Return whether the device has an F or B that has not started in the new row."""
    for k in range(problem.on.shape[1]):
        queue = problem.on[device, k]
        if queue >= 0 and after.new_started[queue] < problem.queues[queue].count:
            return True
    return False


@compiled_inline
def _make_arrivals(
    problem: FewDevices, before: Table, row: int, queue: int, partner: int, path: int, end: int, after: Table
) -> None:
    """Write into the new row when each microbatch under way on a path can start its next operation.

    The last operation is the next item of `queue`, with that of `partner`, and ends at tick `end`.
    """
    started, times, mine = after.new_started, after.new_times, problem.paths[path]
    moved = before.started[row, queue] if problem.queues[queue].path == path else -1
    other = -1
    if partner >= 0 and problem.queues[partner].path == path:
        other = before.started[row, partner]
    following = mine.end - 1
    for microbatch in range(started[mine.end - 1], started[mine.begin]):
        while started[following - 1] <= microbatch:
            following -= 1
        column = mine.column + microbatch % mine.columns
        arrival = before.times[row, column]
        if microbatch == moved:
            arrival = end + problem.queues[queue].lag
        elif microbatch == other:
            arrival = end + problem.queues[partner].lag
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
    cost = times[COST]
    for d in range(devices):
        end = times[FREE + d] + problem.devices[d].weight * times[FREE + devices + d]
        cost = max(cost, end - problem.devices[d].begin)
    after.counter[COMPLETE] = min(after.counter[COMPLETE], cost)
