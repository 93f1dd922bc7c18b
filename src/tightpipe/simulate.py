"""Order -> earliest start times and memory trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .compiled import compiled_with_arrays
from .errors import DeadlockError, InputError
from .instance import Instance
from .integers import plain
from .operation import Operation, OpKind
from .schedule import Ints, Order, Schedule
from .tables import tables

_F, _B, _W, _BW = (int(kind) for kind in OpKind)
_ABSENT = -1


def simulate(instance: Instance, order: Order, release: ArrayLike | None = None) -> Schedule:
    """Start every operation as early as its device's sequence and its predecessors allow.

    Parameters
    ----------
    instance
        The problem; the order's operations must be its operations.
    order
        What each device runs, in sequence.
    release
        Earliest start of each device's first operation, in ticks: one integer per device, as a sequence or
        an array. None means 0 everywhere.

    Returns
    -------
    Schedule
        The unique schedule with the smallest start times.

    Raises
    ------
    DeadlockError
        If operations wait for each other; the message names them.
    InputError
        If the order has an operation that the instance has not, or twice, or joins what cannot be, or if
        `release` is not one integer per device.
    """
    t = tables(instance)
    earliest = _release_times(release, instance.devices)
    _check_operations(instance, order)
    start, end, done = _earliest(
        *(order.operations, order.offsets, order.pairs, t.duration, t.lag, t.peer, t.route),
        *(t.overlapped, instance.costs.link_occupancy, earliest),
    )
    if done < len(order):
        raise DeadlockError(_describe_deadlock(instance, order, start))
    return Schedule(instance, order, start, end)


def memory_trace(instance: Instance, order: Order) -> NDArray[np.int64]:
    """Return the memory of each operation's device while it runs, shape (N,).

    F counts from its start on, B and W until their end, so the trace's largest entry on a device
    is its peak. The trace depends on the order alone.
    """
    delta = tables(instance).delta[order.operations[:, 0], order.operations[:, 1]]
    during = np.empty(len(order), np.int64)
    for device in range(order.devices):
        rows = order.rows(device)
        after = np.cumsum(delta[rows])
        during[rows] = after - np.minimum(delta[rows], 0)
    return during


def _release_times(release: ArrayLike | None, devices: int) -> Ints:
    if release is None:
        return np.zeros(devices, np.int64)
    times = np.asarray(release)
    if times.shape != (devices,) or times.dtype.kind not in "iu":
        rule = f"must be one integer per device: {devices}"
        raise InputError(rule, key="release", value=plain(release))
    return times.astype(np.int64)


def _check_operations(instance: Instance, order: Order) -> None:
    if order.devices != instance.devices:
        raise InputError(f"the order has {order.devices} devices, the instance {instance.devices}")
    kind, stage, microbatch = order.operations.T
    known = (kind >= 0) & (kind <= _BW) & (stage >= 0) & (stage < instance.stages)
    known &= (microbatch >= 0) & (microbatch < instance.microbatches)
    if not known.all():
        raise InputError("the instance has no such operation", value=order.operations[~known][0].tolist())
    ids = (kind * instance.stages + stage) * instance.microbatches + microbatch
    counts = np.bincount(ids, minlength=4 * instance.stages * instance.microbatches)
    if counts.max(initial=0) > 1:
        twice = order.operations[np.flatnonzero(counts[ids] > 1)[0]]
        raise InputError("the order has this operation twice", value=str(_operation(twice)))
    if order.pairs.any():
        _check_pairs(order)


def _check_pairs(order: Order) -> None:
    first = np.flatnonzero(order.pairs)
    second = np.minimum(first + 1, len(order) - 1)
    kinds = order.operations[:, 0]
    fits = (kinds[first] == _F) & ((kinds[second] == _B) | (kinds[second] == _BW))
    fits &= ~np.isin(first + 1, order.offsets)  # the next row belongs to the next device
    if not fits.all():
        rule = "runs together with the next operation of its device, which must be a B or BW after an F"
        raise InputError(rule, value=str(_operation(order.operations[first[~fits][0]])))


def _operation(row: NDArray[np.int64]) -> Operation:
    return Operation(OpKind(int(row[0])), int(row[1]), int(row[2]))


@compiled_with_arrays
def _predecessor_end(kind: int, stage: int, m: int, end: Any, sent: Any) -> int:
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
def departure(end: int, receiver: int, last: Any, occupancy: int) -> int:
    """Return when a message to `receiver` leaves: at once, or when the link from its device is free."""
    if receiver < 0 or occupancy == 0:
        return end
    last[receiver] = max(end, last[receiver] + occupancy)
    return int(last[receiver])


@compiled_with_arrays
def _earliest(
    operations: Any,
    offsets: Any,
    joined: Any,
    duration: Any,
    lags: Any,
    peers: Any,
    route: Any,
    overlapped: Any,
    occupancy: int,
    release: Any,
) -> tuple[Any, Any, int]:
    """Run the devices in turn, each until its head has to wait; start is -1 where a deadlock stopped it."""
    devices = len(offsets) - 1
    ends = np.full((4, duration.shape[1], len(route)), _ABSENT, np.int64)
    sent = ends.copy()
    last = np.full((devices, devices), -occupancy, np.int64)  # when the last message left, by link
    start = np.full(len(operations), _ABSENT, np.int64)
    end = np.full(len(operations), _ABSENT, np.int64)
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


def _describe_deadlock(instance: Instance, order: Order, start: NDArray[np.int64]) -> str:
    """Follow 'waits for' from the first blocked operation until one repeats, or one is in no order at all."""
    rows = {tuple(op): i for i, op in enumerate(order.operations.tolist())}
    first = {i for i in order.offsets.tolist() if i < len(order)}
    here = int(np.flatnonzero(start < 0)[0])
    seen: list[int] = []
    while here not in seen:
        seen.append(here)
        if here not in first and start[here - 1] < 0:
            here -= 1  # its device has not come to it
            continue
        row, before = next(_waits(instance, order, start, rows, here))
        if before not in rows:
            lacking = Operation(OpKind(before[0]), *before[1:])
            return f"{_operation(order.operations[row])} waits for {lacking}, which no device runs"
        here = rows[before]
    cycle = [*seen[seen.index(here) :], here]
    return "operations wait for each other: " + " waits for ".join(
        str(_operation(order.operations[i])) for i in cycle
    )


def _waits(
    instance: Instance, order: Order, start: NDArray[np.int64], rows: dict[Any, int], head: int
) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Yield (row, operation that it waits for) for the operations that run together from row `head` on."""
    for row in range(head, head + int(order.pairs[head]) + 1):
        before = _predecessor(instance, order.operations[row], rows)
        if before is not None and (before not in rows or start[rows[before]] < 0):
            yield row, before


def _predecessor(
    instance: Instance, row: NDArray[np.int64], rows: dict[Any, int]
) -> tuple[int, int, int] | None:
    """Return the operation whose end `_predecessor_end` looks at."""
    kind, stage, m = (int(v) for v in row)
    if kind == _F:
        return (_F, stage - 1, m) if stage else None
    if kind == _W:
        return (_B, stage, m)
    if stage == instance.stages - 1:
        return (_F, stage, m)
    fused = (_BW, stage + 1, m)
    return fused if fused in rows else (_B, stage + 1, m)
