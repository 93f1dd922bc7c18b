"""What a user gives becomes one entry per stage, device or pair of stages, and is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.errors import InputError, check_int, is_list, per_item, plain
from .costs import (
    Alike,
    Costs,
    Memory,
    MicrobatchClass,
    MicrobatchSlice,
    Offload,
    Part,
    PerStage,
    Step,
    Table,
    sums,
)
from .placement import Placement

MOST_STAGES = 256
"""The most stages of one device whose pairs have times of their own."""


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


def expand_durations(
    costs: Costs | MicrobatchClass | MicrobatchSlice, stages: int, where: str = ""
) -> tuple[PerStage, PerStage, PerStage]:
    """Return the ticks of F, B and W at each stage; a gradient that passes on needs a B.

    A stage whose F takes no time is empty: it passes on what comes, and has no times of its own. Not all
    stages are. `where` prefixes the keys in errors.
    """
    forward = per_item(f"{where}forward", costs.forward, stages, "stage", 0)
    backward = per_item(f"{where}backward", costs.backward, stages, "stage", 0)
    weight = per_item(f"{where}weight", costs.weight, stages, "stage", 0)
    first = next((s for s in range(stages) if backward[s] or weight[s]), stages)
    for stage in range(stages):
        if not forward[stage] and (backward[stage] or weight[stage]):
            key = f"{where}forward[{stage}]" if is_list(costs.forward) else f"{where}forward"
            rule = f"must be at least 1, or backward and weight 0, which says that stage {stage} is empty"
            raise InputError(rule, key=key, value=0)
        if stage > first and forward[stage] and not backward[stage]:
            key = f"{where}backward[{stage}]" if is_list(costs.backward) else f"{where}backward"
            rule = f"must be at least 1: the gradient passes on to stage {first}, which has a B or a W"
            raise InputError(rule, key=key, value=0)
    if not any(forward):
        rule = "must be at least 1 at one stage or more: else there is nothing to schedule"
        raise InputError(rule, key=f"{where}forward", value=plain(costs.forward))
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


def expand_step(value: Any, stages: int, devices: int) -> Step | None:
    """Return the step with one entry per stage and per device; None stays None."""
    if value is None:
        return None
    check_type("step", value, Step)
    return Step(
        per_item("step.ready", value.ready, stages, "stage", 0),
        per_item("step.reduce", value.reduce, stages, "stage", 0),
        per_item("step.optimizer", value.optimizer, devices, "device", 0),
    )


def expand_offload(value: Any, memory: Memory | None, costs: Sequence[Alike], stages: int) -> Offload | None:
    """Return what may leave, with one entry per stage, from what the user gives; None where nothing may."""
    if value is None:
        return None
    check_type("offload", value, Offload)
    if memory is None:
        rule = "must be left out: the instance has no memory"
        raise InputError(rule, key="offload.memory", value=value.memory)
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
    """Return the memory that F, B and W add at each stage, in sum 0; `where` prefixes the keys in errors."""
    stages = len(durations[0])
    if memory is None:
        return ((0,) * stages,) * 3
    forward = per_item(f"{where}memory.forward", memory.forward, stages, "stage", 0)
    # an empty stage holds nothing, also where one number is given for all stages
    forward = tuple(f if any(times) else 0 for f, *times in zip(forward, *durations, strict=True))
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


def expand_part(
    where: str, given: Part, costs: Costs, fused: Any, memory: Memory | None, stages: int
) -> tuple[Part, Alike]:
    """Return a class or a slice with one entry per stage, and what its operations cost.

    `fused` is that of the instance as the user gives it, and `where` what errors call the part, e.g.
    ``classes[0].``. Raise an InputError if it breaks a rule; the message names the entry, its value and the
    rule.
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


def expand_overlapped(value: Any, placement: Placement) -> tuple[int, ...] | None:
    """Return the ticks of a pair on each device; None stays None."""
    if value is None:
        return None
    ticks = per_item("overlapped", value, placement.devices, "device", 1)
    _check_number("overlapped", placement)
    return ticks


def expand_pairs(value: Any, placement: Placement, both: Sequence[bool]) -> Table | None:
    """Return the ticks of an F of each stage (rows) with a BW of each stage (columns); None stays None.

    An entry does not matter where no device has both stages, or where the second stage has no BW, as `both`
    says. Raise an InputError if the value is no matrix of one row and one column per stage, or has an entry
    below 0, or one that counts below 1.
    """
    if value is None:
        return None
    stages = placement.stages
    if not is_list(value) or len(value) != stages:
        given = f"has {len(value)} rows, " if is_list(value) else ""
        rule = f"{given}must have a row for the F of each stage: {stages}"
        raise InputError(rule, key="pairs", value=list(value) if is_list(value) else value)
    _check_number("pairs", placement)
    counts = np.zeros((stages, stages), bool)
    for device in range(placement.devices):
        held = list(placement.stages_on(device))
        counts[np.ix_(held, held)] = True
    counts &= np.array(both, bool)
    table = []
    for f, row in enumerate(map(plain, value)):
        key = f"pairs[{f}]"
        if not is_list(row):
            raise InputError(f"must be a row of {stages} integers", key=key, value=row)
        ticks = per_item(key, row, stages, "stage", 0)
        for b in np.flatnonzero(counts[f]).tolist():
            check_int(f"{key}[{b}]", ticks[b], 1)
        table.append(ticks)
    return tuple(table)


def _check_number(key: str, placement: Placement) -> None:
    most = max(len(placement.stages_on(d)) for d in range(placement.devices))
    if most > MOST_STAGES:
        rule = f"times of pairs need at most {MOST_STAGES} stages per device"
        raise InputError(rule, key=key, value=most)


def check_type(key: str, value: Any, kind: type) -> None:
    """Raise an InputError unless a value is of this dataclass."""
    if not isinstance(value, kind):
        fields = ", ".join(field.name for field in fields_of(kind))
        raise InputError(f"must be a {kind.__name__}({fields})", key=key, value=value)
