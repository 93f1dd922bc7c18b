"""The simulator computes the earliest start times of an order, and the memory that devices hold over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..kernels.arrays import Ints
from .errors import DeadlockError, InputError
from .instance import Instance
from .instance_arrays import arrays_of
from .integers import plain
from .operation import Operation, OpKind
from .schedule import Order, Schedule
from .simulate_kernel import earliest_times

_F, _B, _W, _BW = (int(kind) for kind in OpKind)


def simulate(instance: Instance, order: Order, release: ArrayLike | None = None) -> Schedule:
    """Return the schedule that starts every operation as early as its device and its predecessors allow.

    Parameters
    ----------
    instance
        The problem; the order's operations must be its operations.
    order
        The sequence of operations on each device.
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
        If the order has another number of devices than the instance, an operation that the instance does not
        have, an operation twice, or a slot whose two operations cannot run together; or if `release` is not
        one integer per device.
    """
    return simulate_in_sequence(instance, order, release)[0]


def simulate_in_sequence(
    instance: Instance, order: Order, release: ArrayLike | None = None
) -> tuple[Schedule, Ints]:
    """Return the schedule of `simulate`, and the first row of each slot in the sequence of their starts.

    In this sequence each slot comes after those that it waits for. The arguments and the errors are those of
    `simulate`.
    """
    earliest = _release_times(release, instance.devices)
    _check_operations(instance, order)
    start, end, sequence = earliest_times(*run_arrays(instance, order), earliest)
    if start.min(initial=0) < 0:
        raise DeadlockError(_describe_deadlock(instance, order, start))
    by_start = np.argsort(start[sequence], kind="stable")
    return Schedule(instance, order, start, end), sequence[by_start]


def run_arrays(
    instance: Instance, order: Order
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, int]:
    """Return the arguments, from the order and the instance, of the loops that run an order."""
    numbers = arrays_of(instance)
    return (
        *(order.operations, order.offsets, order.pairs),
        *(numbers.duration, numbers.lag, numbers.peer, numbers.route, numbers.overlapped),
        instance.costs.link_occupancy,
    )


def memory_trace(instance: Instance, order: Order) -> NDArray[np.int64]:
    """Return the memory that a device holds while it runs each of its operations, shape (N,).

    The array has one entry, in the instance's unit of memory, for each row of the order. An F takes memory
    from its start on, and a B or W frees memory at its end, so the largest entry of a device is its peak. The
    memory depends only on the order, not on the times.
    """
    delta = arrays_of(instance).delta[order.operations[:, 0], order.operations[:, 1]]
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


def _describe_deadlock(instance: Instance, order: Order, start: NDArray[np.int64]) -> str:
    """Return a sentence that says which operations wait for each other in a circle.

    The search goes from a blocked operation to the one that blocks it, until an operation repeats. If it
    meets an operation that no device runs, the sentence names that operation instead.
    """
    rows = {tuple(op): i for i, op in enumerate(order.operations.tolist())}
    first = {i for i in order.offsets.tolist() if i < len(order)}
    here = int(np.flatnonzero(start < 0)[0])
    seen: list[int] = []
    while here not in seen:
        seen.append(here)
        if here not in first and start[here - 1] < 0:
            here -= 1  # the device is blocked before this operation, by the one of the row above
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
    """Yield each blocked row of the slot that begins at row `head`, with the operation that blocks it."""
    for row in range(head, head + int(order.pairs[head]) + 1):
        before = _predecessor(instance, order.operations[row], rows)
        if before is not None and (before not in rows or start[rows[before]] < 0):
            yield row, before


def _predecessor(
    instance: Instance, row: NDArray[np.int64], rows: dict[Any, int]
) -> tuple[int, int, int] | None:
    """Return kind, stage and microbatch of the operation that the operation `row` waits for.

    `row` is a row of ``Order.operations``, and `rows` has the row number of each operation in the order. The
    result is None for an F of the first stage.
    """
    kind, stage, m = (int(v) for v in row)
    if kind == _F:
        return (_F, stage - 1, m) if stage else None
    if kind == _W:
        return (_B, stage, m)
    if stage == instance.stages - 1:
        return (_F, stage, m)
    fused = (_BW, stage + 1, m)
    return fused if fused in rows else (_B, stage + 1, m)
