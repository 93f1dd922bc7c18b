"""What an instance says in numbers: costs, memory, the step around the operations, and the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, check_int, is_list, per_item, plain, store_plain

Integers = np.integer[Any] | NDArray[np.integer[Any]]
Ticks = int | Sequence[int] | Integers
PerStage = tuple[int, ...]


class Objective(StrEnum):
    """What a schedule costs, in ticks: the quantity that a solver minimizes."""

    DEVICE_SPAN = "device_span"  #: largest (last end - first start) of a device
    MAKESPAN = "makespan"  #: last end - first start over all devices
    STEP = "step"  #: time from tick 0 until all devices have reduced gradients and run their optimizer


@dataclass(frozen=True, slots=True)
class Costs:
    """Durations of computation and communication, in ticks, the integer time unit of an instance.

    Parameters
    ----------
    forward
        Duration of F, a number or one number per stage, at least 1.
    backward, weight
        Duration of B and of W, each a number or one number per stage, at least 0. 0 means that the stage has
        no such operation. A stage has a B if an earlier stage has a B or a W.
    comm
        Time from the end of an operation to the earliest start of its successor on another device, at least
        0. It is one number, or a `devices` x `devices` matrix with the time from device i to device j in row
        i and column j. The diagonal of a matrix must be 0, because within a device a successor may start at
        once.
    overlapped
        Duration of an F that runs together with a BW, as in DualPipe: a number or one per device, at least
        1. None means the sum of the two durations. The value may be longer than the two operations apart,
        in which case running them together never pays, or shorter than one of them.
    link_occupancy
        How long a message keeps its directed link busy, at least 0. The messages from one device to another
        leave in the sequence of the operations that made them, each at least this long after the one before.
    fused
        Duration of a BW, which is a B and the W of its microbatch as one operation: a number or one number
        per stage, at least 1. None means the sum of the two durations. A schedule may fuse some backwards and
        split others. The value may be longer than the two operations apart, or shorter than one of them. It
        does not matter at stages without a B or without a W.
    """

    forward: Ticks
    backward: Ticks
    weight: Ticks
    comm: int | Sequence[Sequence[int]] | Integers = 0
    overlapped: Ticks | None = None
    link_occupancy: int = 0
    fused: Ticks | None = None

    def __post_init__(self) -> None:
        store_plain(self)


@dataclass(frozen=True, slots=True)
class Memory:
    """How much memory each operation takes or frees, and the limit of each device, in one integer unit.

    At every stage with a B or a W the three changes sum to zero: B and W together free what F has taken. At
    any other stage an F takes memory only while it runs. An operation that a stage does not have changes
    nothing.

    Parameters
    ----------
    forward
        What an F adds at its start, a number or one number per stage, at least 0.
    backward, weight
        What a B and a W add at their end, each a number or one number per stage, at most 0.
    limit
        Memory limit, a number or one number per device; None for no limit.
    """

    forward: Ticks
    backward: Ticks
    weight: Ticks
    limit: int | Sequence[int] | Integers | None

    def __post_init__(self) -> None:
        store_plain(self)


@dataclass(frozen=True, slots=True)
class Step:
    """What a training step takes beside F, B and W, in ticks. It counts if the objective is `step`.

    Parameters
    ----------
    ready
        Before this tick no F of a stage starts, e.g. because its parameters are gathered until then: a number
        or one number per stage, at least 0.
    reduce
        How long a stage's gradients are reduced after its last operation, a number or one number per stage,
        at least 0. A device reduces one stage after another, in the sequence in which they end, and computes
        on meanwhile.
    optimizer
        How long a device runs its optimizer after its last operation and reduction, a number or one number
        per device, at least 0.
    """

    ready: Ticks = 0
    reduce: Ticks = 0
    optimizer: Ticks = 0

    def __post_init__(self) -> None:
        store_plain(self)


def expand_comm(comm: Any, devices: int) -> tuple[tuple[int, ...], ...]:
    """Return communication times as a matrix, from one number for all pairs of devices or from a matrix.

    Raises
    ------
    InputError
        If `comm` is neither a number nor a matrix, or if the matrix has another size, a negative entry, or a
        diagonal entry other than 0.
    """
    if not is_list(comm):
        if not isinstance(comm, int) or isinstance(comm, bool):
            raise InputError("must be an integer or a devices x devices matrix", key="comm", value=comm)
        number = check_int("comm", comm, 0)
        return tuple(tuple(number * (i != j) for j in range(devices)) for i in range(devices))
    if len(comm) != devices:
        raise InputError(
            f"has {len(comm)} rows, must have one per device: {devices}", key="comm", value=list(comm)
        )
    rows = [plain(row) for row in comm]
    for i, row in enumerate(rows):
        if not is_list(row):
            raise InputError(f"must be a row of {devices} integers", key=f"comm[{i}]", value=row)
    matrix = tuple(per_item(f"comm[{i}]", row, devices, "device", 0) for i, row in enumerate(rows))
    for i, entries in enumerate(matrix):
        if entries[i]:
            rule = "must be 0: a device sends itself no message"
            raise InputError(rule, key=f"comm[{i}][{i}]", value=entries[i])
    return matrix
