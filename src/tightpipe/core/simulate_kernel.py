"""The compiled loop of the simulator computes the earliest start times of all operations of an order."""

from __future__ import annotations

import numpy as np

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled_with_arrays
from .operation import OpKind

_F, _B, _W, _BW = (int(kind) for kind in OpKind)
ABSENT = -1
"""Start and end of an operation that cannot run, as in a deadlock."""


@compiled_with_arrays
def _predecessor_end(kind: int, stage: int, m: int, end: Ints, sent: Ints) -> int:
    """Return the tick at which the result that an operation needs leaves its predecessor's device.

    Without a message, this is the end of the predecessor. The result is -1 if the predecessor has not run
    yet, and 0 if the operation has no predecessor. `end` and `sent` hold the end of each operation and the
    departure of its message, both of shape (4, stages, microbatches).
    """
    if kind == _F:
        return 0 if stage == 0 else int(sent[_F, stage - 1, m])
    if kind == _W:
        return int(end[_B, stage, m])
    if stage == end.shape[1] - 1:
        return int(end[_F, stage, m])
    # The next stage runs either B or BW for this microbatch; the end of the other one stays ABSENT.
    return int(max(sent[_B, stage + 1, m], sent[_BW, stage + 1, m]))


@compiled_with_arrays
def departure(end: int, receiver: int, last: Ints, occupancy: int) -> int:
    """Return when a message to `receiver` leaves, in ticks: at `end`, or later if the link is still busy.

    A link is busy for `occupancy` ticks after a message leaves. `last` holds when the last message to each
    receiver left, and is updated. A negative `receiver` means that there is no message.
    """
    if receiver < 0 or occupancy == 0:
        return end
    last[receiver] = max(end, last[receiver] + occupancy)
    return int(last[receiver])


@compiled_with_arrays
def earliest_times(
    operations: Ints,
    offsets: Ints,
    joined: Ints,
    duration: Ints,
    lags: Ints,
    peers: Ints,
    route: Ints,
    overlapped: Ints,
    occupancy: int,
    release: Ints,
) -> tuple[Ints, Ints, Ints]:
    """Return the earliest start and end of each operation in ticks, and the slots in a sequence of events.

    A device runs its operations in sequence until the next one waits for an operation that has not run yet.
    The device goes on after another one has sent it a message. The loop ends when no device can go on.
    Operations that have not run by then never can, because of a deadlock or a missing operation; their
    start and end are `ABSENT`.

    The sequence has the first row of each slot that can run, and every slot comes after those it waits for.

    `release` holds the earliest start of each device, and `occupancy` is the link occupancy, both in ticks.
    The other arrays are those of `Order` and `InstanceArrays`.
    """
    devices = len(offsets) - 1
    ends = np.full((4, duration.shape[1], len(route)), ABSENT, np.int64)
    sent = ends.copy() if occupancy > 0 else ends
    # tick at which the last message left, by link
    last = np.full((devices, devices if occupancy > 0 else 1), -occupancy, np.int64)
    start = np.full(len(operations), ABSENT, np.int64)
    end = np.full(len(operations), ABSENT, np.int64)
    sequence = np.empty(len(operations), np.int64)
    head = offsets[:-1].copy()
    free = release.copy()
    waiting = np.empty(devices, np.int64)  # a ring: the devices that may be able to go on
    listed = np.empty(devices, np.bool_)
    done, before = 0, -1
    while done > before:  # in an order whose operations are all on their devices, one round is enough
        before, first, count = done, 0, devices
        for device in range(devices):
            waiting[device], listed[device] = device, True
        while count > 0:
            device = waiting[first]
            first, count = (first + 1) % devices, count - 1
            listed[device] = False
            while head[device] < offsets[device + 1]:
                i = head[device]
                kind, stage, m = operations[i, 0], operations[i, 1], operations[i, 2]
                ready = _predecessor_end(kind, stage, m, ends, sent)
                if ready < 0:
                    break
                begin = max(free[device], ready + lags[kind, route[m], stage])
                until = begin + duration[kind, stage]
                rows = 1
                if joined[i]:
                    other, its_stage, its_m = operations[i + 1, 0], operations[i + 1, 1], operations[i + 1, 2]
                    ready = _predecessor_end(other, its_stage, its_m, ends, sent)
                    if ready < 0:
                        break
                    begin = max(begin, ready + lags[other, route[its_m], its_stage])
                    until = begin + paired_time(duration, overlapped[device], kind, stage, other, its_stage)
                    rows = 2
                for j in range(i, i + rows):
                    kind, stage, m = operations[j, 0], operations[j, 1], operations[j, 2]
                    start[j], end[j] = begin, until
                    ends[kind, stage, m] = until
                    receiver = peers[kind, route[m], stage]
                    if occupancy > 0:
                        sent[kind, stage, m] = departure(until, receiver, last[device], occupancy)
                    if receiver >= 0 and not listed[receiver]:
                        waiting[(first + count) % devices] = receiver
                        listed[receiver] = True
                        count += 1
                free[device] = until
                head[device] += rows
                sequence[done] = i
                done += 1
    return start, end, sequence[:done]


@compiled_with_arrays
def paired_time(duration: Ints, together: int, kind: int, stage: int, other: int, its_stage: int) -> int:
    """Return the ticks of a slot with two operations: `together` for an F with a BW, else their sum.

    `together` is negative where the device has no such time.
    """
    if together < 0 or other != _BW:
        return int(duration[kind, stage] + duration[other, its_stage])
    return together
