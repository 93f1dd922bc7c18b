"""What an instance says in numbers: costs, memory, the step, the objective; and the most that pairs save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError, store_plain
from .operation import OpKind

Integers = np.integer[Any] | NDArray[np.integer[Any]]
Ticks = int | Sequence[int] | Integers
PerStage = tuple[int, ...]
Table = tuple[tuple[int, ...], ...]


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
    pairs
        The same for each pair of stages, in place of `overlapped`: a `stages` x `stages` matrix with the
        duration of an F of stage i that runs together with a BW of stage j in row i and column j, at least 1.
        Entries of stages that no device has both do not matter.
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
    pairs: Sequence[Sequence[int]] | Integers | None = None

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
    limit: int | Sequence[int] | Integers | None = None

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


@dataclass(frozen=True, slots=True)
class Offload:
    """What may leave a device between the forward and the backward of a microbatch, and how long copies take.

    Once the F of a microbatch has ended, `memory` may be copied out of the device, which frees it at the end
    of the copy. It is then copied back, which takes memory from the start of that copy on, before the B, BW
    or W starts that waits for the gradient. A schedule chooses for which microbatches and stages it does so.
    A device runs its copies out one after another, and its copies back, beside what it computes.

    Parameters
    ----------
    memory
        What may leave, a number or one number per stage, at least 0 and at most what an F adds there. Nothing
        leaves where it is 0, and it is 0 where a stage has neither B nor W.
    out, back
        Durations of the copies out and back in ticks, each a number or one number per stage, at least 1. They
        do not matter where nothing leaves.
    duplex
        Whether copies out and copies back run at the same time. If not, a device runs one copy at a time.
    """

    memory: Ticks
    out: Ticks
    back: Ticks
    duplex: bool = True

    def __post_init__(self) -> None:
        store_plain(self)


@dataclass(frozen=True, slots=True)
class MicrobatchClass:
    """Microbatches that differ from others, e.g. because their sequences are longer.

    What is None is as the costs and the memory of the instance say.

    - `count`: number of microbatches of the class, at least 1.
    - `forward`, `backward`, `weight`, `fused`: durations of the operations, as in `Costs`. A class whose
      `fused` is None takes that of the instance, even where it is below its own B; if the instance has none,
      a BW takes as long as B and W together.
    - `memory`: what the operations take and free. It has no limit: the devices have theirs from the instance.
    """

    count: int
    forward: Ticks | None = None
    backward: Ticks | None = None
    weight: Ticks | None = None
    fused: Ticks | None = None
    memory: Memory | None = None

    def __post_init__(self) -> None:
        store_plain(self)


@dataclass(frozen=True, slots=True)
class MicrobatchSlice:
    """One of the slices into which every microbatch is cut, along its sequence.

    What is None is as the costs and the memory of the instance say; nothing is divided.

    Parameters
    ----------
    forward, backward, weight, fused, memory
        As in `MicrobatchClass`.
    """

    forward: Ticks | None = None
    backward: Ticks | None = None
    weight: Ticks | None = None
    fused: Ticks | None = None
    memory: Memory | None = None

    def __post_init__(self) -> None:
        store_plain(self)


@dataclass(frozen=True, slots=True)
class Alike:
    """Units that take the same route, times and memory, with one entry per stage."""

    route: int  #: number of their route in the placement
    duration: tuple[PerStage, PerStage, PerStage, PerStage]  #: ticks of F, B, W and BW
    #: memory that F, B, W and BW add; 0 for an F that holds memory only while it runs
    delta: tuple[PerStage, PerStage, PerStage, PerStage]
    passing: PerStage  #: memory that an F takes at its start and frees at its end
    slice: int = 0  #: number of their slice; 0 where microbatches are whole

    def has(self, kind: OpKind, stage: int) -> bool:
        """Return whether a stage has an F, B, W or BW: each has an F, and one with a B and a W has a BW.

        A B of 0 ticks is there where a gradient passes through an empty stage, whose F takes 0 ticks.
        """
        forward, backward, weight, _ = self.duration
        if kind is OpKind.B and not forward[stage]:
            return any(backward[:stage]) or any(weight[:stage])
        if kind is OpKind.BW:
            return backward[stage] > 0 and weight[stage] > 0
        return kind is OpKind.F or (backward if kind is OpKind.B else weight)[stage] > 0

    @property
    def work(self) -> int:
        """Ticks of all operations of a unit at all stages, with fused backwards where they take less."""
        return sum(f + min(b + w, fused) for f, b, w, fused in zip(*self.duration, strict=True))

    @property
    def memory(self) -> Memory:
        """What the operations take and free, without limits."""
        return Memory(sums(self.delta[0], self.passing), *self.delta[1:3])

    def activation(self, stage: int) -> int:
        """Return the memory that an F takes at its start."""
        return self.delta[0][stage] + self.passing[stage]

    @classmethod
    def of(
        cls, durations: tuple[PerStage, ...], fused: PerStage | None, deltas: tuple[PerStage, ...]
    ) -> Alike:
        """Return what microbatches of the first route cost; `fused` None stands for the sum of B and W."""
        forward, backward, weight = durations
        held = tuple(f if b + w else 0 for f, b, w in zip(deltas[0], backward, weight, strict=True))
        return cls(
            0,
            (forward, backward, weight, fused or sums(backward, weight)),
            (held, deltas[1], deltas[2], sums(*deltas[1:])),
            tuple(f - h for f, h in zip(deltas[0], held, strict=True)),
        )


Part = TypeVar("Part", MicrobatchClass, MicrobatchSlice)


def sums(first: PerStage, second: PerStage) -> PerStage:
    """Return the sum of two values at each stage."""
    return tuple(a + b for a, b in zip(first, second, strict=True))


def objective_of(value: Any) -> Objective:
    """Return the objective of a text, or the objective itself."""
    try:
        return Objective(value)
    except ValueError:
        rule = f"must be one of {', '.join(Objective)}"
        raise InputError(rule, key="objective", value=value) from None


@lru_cache(maxsize=256)
def largest_savings(savings: Table) -> tuple[int, ...]:
    """Return what the first pair saves, what a second one adds, and so on, as long as it is more than 0.

    `savings` has what an F of each row saves with a backward of each column, each of which is in one pair at
    most. The sum of the first k numbers is the most that k pairs save, and no number is larger than the one
    before.

    This is a matching of largest weight, which grows by one pair at a time along a path of largest gain: new
    pairs along it alternate with pairs that are given up. The gains of successive paths do not rise. If every
    row and column stands for n equal operations, each number holds for n pairs: fractions 1/n of operations
    gain nothing, as the vertices of the polytope of matchings with at most k pairs are integral.
    """
    gain = np.array(savings, np.int64).reshape(len(savings), -1)
    rows, columns = gain.shape
    mate, free = np.full(columns, -1), np.ones(rows, bool)  # the row of each column; which rows have none
    found: list[int] = []
    while free.any():
        best, via = _best_paths(gain, mate, free)
        ends = np.where(mate < 0, best, -1)
        if columns == 0 or ends.max() <= 0:
            break
        column = int(ends.argmax())
        found.append(int(ends[column]))
        while column >= 0:  # each column on the path takes its new row, whose old column is next
            row = int(via[column])
            old = -1 if free[row] else int(np.flatnonzero(mate == row)[0])
            mate[column], free[row] = row, False
            column = old
    return tuple(found)


_NOTHING = -(2**62)


def _best_paths(gain: Any, mate: Any, free: Any) -> tuple[Any, Any]:
    """Return for each column the most that a path from a free row to it gains, and the last row on it.

    Rows are set only where the gain grows, so that the rows of a path never go in a circle.
    """
    reached = np.where(free, 0, _NOTHING)  # the most that is gained on the way to each row
    best, via = np.full(len(mate), _NOTHING), np.full(len(mate), -1)
    (taken,) = np.nonzero(mate >= 0)
    while True:
        through = np.where(reached[:, None] > _NOTHING, reached[:, None] + gain, _NOTHING)
        rows = through.argmax(axis=0)
        gained = through[rows, np.arange(len(mate))]
        better = gained > best
        if not better.any():
            return best, via
        best, via = np.where(better, gained, best), np.where(better, rows, via)
        onward = best[taken] - gain[mate[taken], taken]  # the pair of the column is given up
        reached[mate[taken]] = np.maximum(
            reached[mate[taken]], np.where(best[taken] > _NOTHING, onward, _NOTHING)
        )
