"""The loop that runs an order: earliest start times of all operations."""

from __future__ import annotations

import numpy as np

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled_with_arrays
from .operation import OpKind

_F, _B, _W, _BW = (int(kind) for kind in OpKind)
ABSENT = -1
"""Start of an operation that a deadlock kept from running."""


@compiled_with_arrays
def _predecessor_end(kind: int, stage: int, m: int, end: Ints, sent: Ints) -> int:
    """Return when what the operation waits for ends or leaves; -1 if it has not run, 0 if nothing."""
    if kind == _F:
        return 0 if stage == 0 else int(sent[_F, stage - 1, m])
    if kind == _W:
        return int(end[_B, stage, m])
    if stage == end.shape[1] - 1:
        return int(end[_F, stage, m])
    # the next stage runs B apart or fused with W; the other of the two stays absent
    return int(max(sent[_B, stage + 1, m], sent[_BW, stage + 1, m]))


@compiled_with_arrays
def departure(end: int, receiver: int, last: Ints, occupancy: int) -> int:
    """Return when a message to `receiver` leaves: at once, or when the link from its device is free."""
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
    """Run the devices in turn, each until its head has to wait; start is -1 where a deadlock stopped it."""
    devices = len(offsets) - 1
    ends = np.full((4, duration.shape[1], len(route)), ABSENT, np.int64)
    sent = ends.copy()
    last = np.full((devices, devices), -occupancy, np.int64)  # when the last message left, by link
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
