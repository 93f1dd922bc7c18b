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
) -> tuple[Ints, Ints, int]:
    """Return the earliest start and end of each operation in ticks, and how many operations can run.

    The loop visits the devices one after another, again and again. Each device runs its operations in
    sequence until the next one waits for an operation that has not run yet. The loop ends when no device can
    go on. Operations that have not run by then never can, because of a deadlock or a missing operation; their
    start and end are `ABSENT`.

    `release` holds the earliest start of each device, and `occupancy` is the link occupancy, both in ticks.
    The other arrays are those of `Order` and `InstanceArrays`.
    """
    devices = len(offsets) - 1
    ends = np.full((4, duration.shape[1], len(route)), ABSENT, np.int64)
    sent = ends.copy()
    last = np.full((devices, devices), -occupancy, np.int64)  # tick at which the last message left, by link
    start = np.full(len(operations), ABSENT, np.int64)
    end = np.full(len(operations), ABSENT, np.int64)
    head = offsets[:-1].copy()
    free = release.copy()
    done, before = 0, -1
    while done > before:
        before = done
        for device in range(devices):
            while head[device] < offsets[device + 1]:
                i = head[device]
                kind, stage, m = operations[i, 0], operations[i, 1], operations[i, 2]
                ready = _predecessor_end(kind, stage, m, ends, sent)
                if ready < 0:
                    break
                begin = max(free[device], ready + lags[kind, route[m], stage])
                until = begin + duration[kind, stage]
                count = 1
                if joined[i]:
                    other, its_stage, its_m = operations[i + 1, 0], operations[i + 1, 1], operations[i + 1, 2]
                    ready = _predecessor_end(other, its_stage, its_m, ends, sent)
                    if ready < 0:
                        break
                    begin = max(begin, ready + lags[other, route[its_m], its_stage])
                    together = overlapped[device]
                    if together < 0 or other != _BW:
                        together = duration[kind, stage] + duration[other, its_stage]
                    until = begin + together
                    count = 2
                for j in range(i, i + count):
                    kind, stage, m = operations[j, 0], operations[j, 1], operations[j, 2]
                    start[j], end[j] = begin, until
                    ends[kind, stage, m] = until
                    receiver = peers[kind, route[m], stage]
                    sent[kind, stage, m] = departure(until, receiver, last[device], occupancy)
                free[device] = until
                head[device] += count
                done += count
    return start, end, done
