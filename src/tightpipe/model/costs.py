"""What an instance says in numbers: costs, memory, the step around the operations, and the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import fields as fields_of
from enum import StrEnum
from typing import Any, TypeVar

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

    Parameters
    ----------
    count
        Number of microbatches of the class, at least 1.
    forward, backward, weight, fused
        Durations of the operations, as in `Costs`. A class whose `fused` is None takes that of the instance,
        even where it is below its own B; if the instance has none, a BW takes as long as B and W together.
    memory
        What the operations take and free. It has no limit: the devices have theirs from the instance.
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
    """Units that take the same route, times and memory, with one entry per stage.

    - `route`: number of their route in the placement.
    - `duration`: ticks of F, B, W and BW.
    - `delta`: memory that F, B, W and BW add; 0 for an F that holds memory only while it runs.
    - `passing`: memory that an F takes at its start and frees at its end.
    - `slice`: number of their slice; 0 where microbatches are whole.
    """

    route: int
    duration: tuple[PerStage, PerStage, PerStage, PerStage]
    delta: tuple[PerStage, PerStage, PerStage, PerStage]
    passing: PerStage
    slice: int = 0

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


def expand_comm(comm: Any, devices: int) -> tuple[tuple[int, ...], ...]:
    """Return communication times as a matrix, from one number for all pairs of devices or from a matrix.

    Raise an InputError if `comm` is neither a number nor a matrix, or if the matrix has another size, a
    negative entry, or a diagonal entry other than 0.
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


def sums(first: PerStage, second: PerStage) -> PerStage:
    """Return the sum of two values at each stage."""
    return tuple(a + b for a, b in zip(first, second, strict=True))


def expand_durations(
    costs: Costs | MicrobatchClass | MicrobatchSlice, stages: int, where: str = ""
) -> tuple[PerStage, PerStage, PerStage]:
    """Return the ticks of F, B and W at each stage; a gradient that passes on needs a B.

    `where` prefixes the keys in errors.
    """
    forward = per_item(f"{where}forward", costs.forward, stages, "stage", 1)
    backward = per_item(f"{where}backward", costs.backward, stages, "stage", 0)
    weight = per_item(f"{where}weight", costs.weight, stages, "stage", 0)
    first = next((s for s in range(stages) if backward[s] or weight[s]), stages)
    for stage in range(first + 1, stages):
        if not backward[stage]:
            key = f"{where}backward[{stage}]" if is_list(costs.backward) else f"{where}backward"
            rule = f"must be at least 1: the gradient passes on to stage {first}, which has a B or a W"
            raise InputError(rule, key=key, value=0)
    return forward, backward, weight


def expand_fused(value: Any, backward: PerStage, weight: PerStage, where: str = "") -> PerStage | None:
    """Return the duration of a BW at each stage; None where it is that of B and W at every stage.

    At stages without B or without W it is the sum of the two, whatever is given. `where` prefixes the key in
    errors.
    """
    apart = sums(backward, weight)
    both = [b > 0 and w > 0 for b, w in zip(backward, weight, strict=True)]
    if value is None or not any(both):
        return None
    if is_list(value) and len(value) == len(both):
        value = [ticks if here else 1 for ticks, here in zip(value, both, strict=True)]
    given = per_item(f"{where}fused", value, len(both), "stage", 1)
    fused = tuple(u if here else a for u, a, here in zip(given, apart, both, strict=True))
    return None if fused == apart else fused


def expand_step(value: Any, stages: int, devices: int, iterations: int) -> Step | None:
    """Return the step with one entry per stage and per device; None stays None."""
    if value is None:
        return None
    check_type("step", value, Step)
    if iterations > 1:
        raise InputError("must be 1 where `step` is given", key="iterations", value=iterations)
    return Step(
        per_item("step.ready", value.ready, stages, "stage", 0),
        per_item("step.reduce", value.reduce, stages, "stage", 0),
        per_item("step.optimizer", value.optimizer, devices, "device", 0),
    )


def expand_offload(
    value: Any, memory: Memory | None, costs: Sequence[Alike], stages: int, iterations: int
) -> Offload | None:
    """Return what may leave, with one entry per stage; None where nothing may.

    - `value`: the offload as the user gives it, or None.
    - `memory`: that of the instance.
    - `costs`: what the units of each class cost.
    """
    if value is None:
        return None
    check_type("offload", value, Offload)
    if memory is None:
        rule = "must be left out: the instance has no memory"
        raise InputError(rule, key="offload.memory", value=value.memory)
    if iterations > 1:
        raise InputError("must be 1 where `offload` is given", key="iterations", value=iterations)
    if not isinstance(value.duplex, bool):
        raise InputError("must be true or false", key="offload.duplex", value=value.duplex)
    away = per_item("offload.memory", value.memory, stages, "stage", 0)
    for stage in range(stages):
        key = f"offload.memory[{stage}]" if is_list(value.memory) else "offload.memory"
        least = min(one.delta[0][stage] for one in costs)
        if away[stage] and not all(one.duration[1][stage] or one.duration[2][stage] for one in costs):
            rule = f"must be 0 at stage {stage}, where no backward needs it again"
            raise InputError(rule, key=key, value=away[stage])
        if away[stage] > least:
            rule = f"must be at most what an F adds at stage {stage}: {least}"
            raise InputError(rule, key=key, value=away[stage])
    out, back = (_copy_ticks(key, getattr(value, key), away) for key in ("out", "back"))
    return Offload(away, out, back, value.duplex) if any(away) else None


def _copy_ticks(key: str, given: Any, away: PerStage) -> PerStage:
    """Return the ticks of the copies of each stage; 0 where nothing leaves, whatever is given there."""
    if is_list(given) and len(given) == len(away):
        given = [ticks if memory else 1 for ticks, memory in zip(given, away, strict=True)]
    ticks = per_item(f"offload.{key}", given, len(away), "stage", 1 if any(away) else 0)
    return tuple(t if memory else 0 for t, memory in zip(ticks, away, strict=True))


def expand_deltas(
    memory: Memory | None, durations: tuple[PerStage, ...], where: str = ""
) -> tuple[PerStage, PerStage, PerStage]:
    """Return the memory that F, B and W add at each stage; what exists at a stage sums to 0.

    `where` prefixes the keys in errors.
    """
    stages = len(durations[0])
    if memory is None:
        return ((0,) * stages,) * 3
    forward = per_item(f"{where}memory.forward", memory.forward, stages, "stage", 0)
    backward = per_item(f"{where}memory.backward", memory.backward, stages, "stage", None)
    weight = per_item(f"{where}memory.weight", memory.weight, stages, "stage", None)
    for key, deltas in (("backward", backward), ("weight", weight)):
        if max(deltas) > 0:
            rule = "must be at most 0: it frees memory"
            raise InputError(rule, key=f"{where}memory.{key}", value=max(deltas))
    for key, deltas, ticks in (("backward", backward, durations[1]), ("weight", weight, durations[2])):
        for stage in range(stages):
            if deltas[stage] and not ticks[stage]:
                rule = f"must be 0 at stage {stage}, which has no {key}"
                raise InputError(rule, key=f"{where}memory.{key}", value=deltas[stage])
    for stage, deltas in enumerate(zip(forward, backward, weight, strict=True)):
        if sum(deltas) and (durations[1][stage] or durations[2][stage]):
            rule = f"forward, backward and weight sum to {sum(deltas)} at stage {stage}, must sum to 0"
            raise InputError(rule, key=f"{where}memory", value=deltas)
    return forward, backward, weight


Part = TypeVar("Part", MicrobatchClass, MicrobatchSlice)


def expand_part(
    where: str, given: Part, costs: Costs, fused: Any, memory: Memory | None, stages: int
) -> tuple[Part, Alike]:
    """Return a class or a slice with one entry per stage, and what its operations cost.

    Raise an InputError if it breaks a rule; the message names the class or the slice, the entry, its value
    and the rule.

    - `where`: where it is given, for errors, e.g. ``classes[0].``
    - `given`: the class or the slice as the user gives it.
    - `costs`, `memory`: those of the instance, with one entry per stage.
    - `fused`: the `fused` of the instance as the user gives it.
    - `stages`: number of stages.
    """
    taken = {
        name: getattr(costs, name) if getattr(given, name) is None else getattr(given, name)
        for name in ("forward", "backward", "weight")
    }
    full = replace(given, **taken, fused=fused if given.fused is None else given.fused)
    durations = expand_durations(full, stages, where)
    together = expand_fused(full.fused, *durations[1:], where) or sums(*durations[1:])
    own = memory
    if given.memory is not None:
        check_type(f"{where}memory", given.memory, Memory)
        if memory is None:
            rule = "must be left out: the instance has no memory"
            raise InputError(rule, key=f"{where}memory", value=given.memory.forward)
        if given.memory.limit is not None:
            rule = "must be left out: the instance has the limits of the devices"
            raise InputError(rule, key=f"{where}memory.limit", value=given.memory.limit)
        own = given.memory
    deltas = expand_deltas(own, durations, where)
    forward, backward, weight = durations
    own = None if memory is None else Memory(*deltas)
    expanded = replace(given, forward=forward, backward=backward, weight=weight, fused=together, memory=own)
    return expanded, Alike.of(durations, together, deltas)


def expand_limit(limit: Any, largest: Sequence[int]) -> tuple[int, ...] | None:
    """Return the memory limit of each device, which holds the `largest` forward activation of the device."""
    if limit is None:
        return None
    limits = per_item("memory.limit", limit, len(largest), "device", 0)
    for device, (value, least) in enumerate(zip(limits, largest, strict=True)):
        if value < least:
            key = f"memory.limit[{device}]" if is_list(limit) else "memory.limit"
            raise InputError(f"must hold one forward activation: at least {least}", key=key, value=value)
    return limits


def objective_of(value: Any) -> Objective:
    """Return the objective of a text, or the objective itself."""
    try:
        return Objective(value)
    except ValueError:
        rule = f"must be one of {', '.join(Objective)}"
        raise InputError(rule, key="objective", value=value) from None


def check_type(key: str, value: Any, kind: type) -> None:
    """Raise an InputError unless a value is of this dataclass."""
    if not isinstance(value, kind):
        fields = ", ".join(field.name for field in fields_of(kind))
        raise InputError(f"must be a {kind.__name__}({fields})", key=key, value=value)
