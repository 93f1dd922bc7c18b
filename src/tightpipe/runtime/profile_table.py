"""A profile holds the measured costs of stages, and is read from a table of times and memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.errors import InputError, about_file, check_choice, check_int
from ..base.files import csv_rows, read_text
from ..model.costs import Memory, Objective
from ..model.instance import MOST_OPERATIONS, Instance

KINDS = ("F", "B", "W")
_FUSED = "BW"
_COMM, _START = "comm", "start"  # rows that belong to no stage
_HEADER = ["stage", "kind", "time", "memory"]
_VARIATION = "variation"  # a last column, which may be left out
_LARGEST = 1e12
_DIGITS = 9
_ROUNDING = 1e-6  # the memory changes of F, B and W may miss the sum 0 by this share of F's change
_MOST_NAMED = 6  # operations that a message names
_NO_COMM = "communication was not measured: comm is 0, as if messages took no time"
_NO_TIME = "took less than half a microsecond and counts as 1 tick, the least that an operation may take"
_NO_MEMORY = "memory was not measured: memory is null, as if a device could hold any number of microbatches"

Samples = dict[tuple[int, str], list[float]]  # (stage, kind) -> microseconds


@dataclass(frozen=True, slots=True)
class Profile:
    """The measured costs of each stage."""

    forward: tuple[int, ...]  #: duration of F at each stage in ticks (microseconds), at least 1
    backward: tuple[int, ...]  #: that of B; 0 where a stage has no B
    weight: tuple[int, ...]  #: that of W; 0 where a stage has no W
    comm: int = 0  #: duration of a message in ticks
    #: for F, B and W, the change of the memory at each stage, in any one unit, negative where memory is
    #: freed; None if memory was not measured
    memory: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    limits: tuple[int, ...] | None = None  #: memory limit of each device, in the same unit; None for none
    #: sentences about quantities that were not measured or are too small to count, with the value assumed
    #: instead, or that were not measured precisely
    warnings: tuple[str, ...] = ()
    #: duration of BW at each stage in ticks; None if it was not measured, and so counts as that of B and W
    fused: tuple[int, ...] | None = None
    #: for F, B and W, how much the times at each stage vary within a step: their standard deviation over
    #: their mean. None if it was not measured. `tightpipe.noise.Jitter` takes it.
    variation: tuple[tuple[float, ...], ...] | None = None
    #: what a device takes to begin an operation, in ticks; all times include it. 0 if it was not measured
    start: int = 0

    def instance(
        self,
        *,
        devices: int,
        microbatches: int,
        placement: str = "v",
        limit: int | Sequence[int] | None = None,
        objective: Objective | str = Objective.DEVICE_SPAN,
    ) -> Instance:
        """Return the instance that has the profiled stages.

        Parameters
        ----------
        devices
            Number of devices, which divides the number of stages.
        microbatches, placement, objective
            See `Instance`.
        limit
            Memory limit in the unit of `memory`, a number or one number per device; None takes the profile's
            limits.

        Raises
        ------
        InputError
            If the number of stages does not fit the devices and the placement, or there is a limit although
            memory was not measured.
        """
        stages = len(self.forward)
        check_int("devices", devices, 1)
        if stages % devices:
            raise InputError(
                f"must divide the number of profiled stages, {stages}", key="devices", value=devices
            )
        if limit is None:
            limit = self.limits
        if limit is not None and self.memory is None:
            raise InputError("the profile has no memory", key="limit", value=limit)
        return Instance.uniform(
            devices=devices,
            microbatches=microbatches,
            forward=self.forward,
            backward=self.backward,
            weight=self.weight,
            comm=self.comm,
            placement=placement,
            chunks=stages // devices,
            memory=None if self.memory is None else Memory(*self.memory, limit),
            objective=objective,
            fused=self.fused,
        )


def read_table(path: str | Path) -> Profile:
    """Return the profile of a table ``stage,kind,time,memory``, with or without a last column ``variation``.

    The table has rows of the kinds F, B and W for every stage, one row of kind ``comm``, and perhaps one of
    kind ``start`` (`Profile.start`). Times are in microseconds. A B or W of time 0 does not exist at its
    stage, such as the W of a frozen one. Rows of the kind BW have the time of a fused backward; at stages
    without such a row it takes as long as B and W. Memory is in any unit: F adds, B and W free, and the three
    sum to 0 at every stage with a B or a W; the column may be empty in all rows, and is not read in rows of
    BW. Nor is the variation (`Profile`), of which an empty cell counts as 0. The rows ``comm`` and ``start``
    have no stage; without ``comm``, communication takes 0 ticks and the profile has a warning. So it has if a
    time above 0 is rounded to 0, which then counts as 1 tick. If several rows have the same stage and kind,
    the smallest time and the last memory count.

    Raise an InputError if the file breaks one of these rules; the message names file, line and rule, or the
    missing rows.
    """
    profiles = read_tables(path)
    if list(profiles) != [None]:
        rule = f"has a column length, of which the costs of one length are wanted; it has {len(profiles)}"
        raise InputError(rule, source=str(path))
    return profiles[None]


def read_tables(path: str | Path) -> dict[int | None, Profile]:
    """Return the profiles of a table by the length of the sequence in tokens, as `read_table` reads each.

    The lengths are in a first column ``length``; a table without it has one profile, of the length None.

    Raises
    ------
    InputError
        As in `read_table`.
    """
    with about_file(path):
        return {length: _from_rows(part) for length, part in _by_length(csv_rows(read_text(path))).items()}


_Rows = list[tuple[int, list[str]]]
"""The number of each line, and its cells."""


def _by_length(rows: _Rows) -> dict[int | None, _Rows]:
    if not rows:
        raise InputError("is empty")
    head = [cell.strip() for cell in rows[0][1]]
    has_lengths = head[:1] == ["length"]
    if head[has_lengths:] not in (_HEADER, [*_HEADER, _VARIATION]):
        raise InputError(f"must begin with {','.join(_HEADER)}", key="line 1", value=",".join(rows[0][1]))
    for line, row in rows:
        if len(row) != len(head):
            raise InputError(f"must have {len(head)} fields", key=f"line {line}", value=",".join(row))
    if not has_lengths:
        return {None: rows[1:]}
    found: dict[int | None, _Rows] = {}
    for line, row in rows[1:]:
        text = row[0].strip()
        if not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
            raise InputError("must be a number of tokens, at least 1", key=f"line {line}.length", value=text)
        found.setdefault(int(text), []).append((line, row[1:]))
    return found


def _from_rows(rows: _Rows) -> Profile:
    samples: Samples = {}
    memory: dict[tuple[int, str], float] = {}
    variation: dict[tuple[int, str], float] = {}
    alone: dict[str, list[float]] = {_COMM: [], _START: []}
    for line, row in rows:
        stage, kind, time, held, *varies = (cell.strip() for cell in row)
        took = check_time(_number(time, f"line {line}.time"), f"line {line}.time")
        if kind in alone:
            alone[kind].append(took)
            continue
        check_choice(f"line {line}.kind", kind, *KINDS, _FUSED, *alone)
        key = (_stage(stage, line), kind)
        samples.setdefault(key, []).append(took)
        if held and kind != _FUSED:
            memory[key] = _number(held, f"line {line}.memory")
        if varies:
            name = f"line {line}.variation"
            variation[key] = check_time(_number(varies[0] or "0", name), name)
    profile = make_profile(samples, memory, min(alone[_COMM], default=None))
    stages = range(len(profile.forward))
    spread = tuple(tuple(variation[stage, kind] for stage in stages) for kind in KINDS) if variation else None
    return replace(profile, variation=spread, start=round(min(alone[_START], default=0)))


def _stage(text: str, line: int) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise InputError("must be a stage number, from 0", key=f"line {line}.stage", value=text)
    return int(text)


def _number(text: str, key: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError("must be a number", key=key, value=text) from None
    if not abs(value) < _LARGEST:
        raise InputError("must be a finite number", key=key, value=text)
    return value


def check_time(value: float, key: str) -> float:
    """Return the time `value` in microseconds if it is at least 0 and below 10**12."""
    if not 0 <= value < _LARGEST:
        raise InputError("must be a number of microseconds, at least 0", key=key, value=value)
    return value


def make_profile(samples: Samples, memory: dict[tuple[int, str], float], comm: float | None) -> Profile:
    """Return the profile with the smallest time of each kind and stage, and warnings about what it lacks.

    A B or W of time 0 does not exist, and any other time that is rounded to 0 ticks counts as 1. `memory` is
    empty and `comm` None if they were not measured. Raise an InputError if an operation has no time, or if
    the changes of memory do not sum to 0 at a stage.
    """
    last = max((stage for stage, _ in samples), default=0)
    stages = range(check_int("stage", last, 0, MOST_OPERATIONS // len(KINDS)) + 1)
    wanted = [(stage, kind) for stage in stages for kind in KINDS]
    _check_present("times", wanted, samples)
    if memory:
        _check_present("memory", wanted, memory)
    least = {operation: min(times) for operation, times in samples.items()}
    absent = {operation for operation in wanted if operation[1] != "F" and not least[operation]}
    ticks = {operation: max(1, round(time)) for operation, time in least.items()} | dict.fromkeys(absent, 0)
    forward, backward, weight = (tuple(ticks[stage, kind] for stage in stages) for kind in KINDS)
    without_time = [
        operation for operation in wanted if operation not in absent and not round(least[operation])
    ]
    apart = [max(1, b + w) for b, w in zip(backward, weight, strict=True)]
    fused = tuple(ticks.get((stage, _FUSED), apart[stage]) for stage in stages)
    held: Any = None
    if memory:
        per_stage = [
            _held(stage, [memory[stage, kind] for kind in KINDS], backward[stage] + weight[stage] > 0)
            for stage in stages
        ]
        held = tuple(zip(*per_stage, strict=True))
    missing = ((_NO_COMM, comm is None), (_NO_MEMORY, not memory))
    warnings = [text for text, lacks in missing if lacks]
    if without_time:
        warnings.append(f"{_named(without_time)} {_NO_TIME}")
    return Profile(
        *(forward, backward, weight, round(comm or 0), held),
        warnings=tuple(warnings),
        fused=fused if any(kind == _FUSED for _, kind in samples) else None,
    )


def _check_present(what: str, wanted: list[tuple[int, str]], found: Iterable[tuple[int, str]]) -> None:
    there = set(found)
    missing = [operation for operation in wanted if operation not in there]
    if missing:
        raise InputError(f"{what} are missing: {_named(missing)}")


def _named(operations: Sequence[tuple[int, str]]) -> str:
    """Return the first operations by name, e.g. ``W of stage 0, F of stage 1 and others``."""
    shown = ", ".join(f"{kind} of stage {stage}" for stage, kind in operations[:_MOST_NAMED])
    return shown + (" and others" if len(operations) > _MOST_NAMED else "")


def _held(stage: int, deltas: Sequence[float], trained: bool) -> tuple[int, int, int]:
    """Return the memory deltas of F, B and W at a stage, rounded so that they sum to 0: W is the rest.

    Where no B and no W frees it (`trained` is false), F gives back what it takes at its own end.
    """
    forward, backward, weight = deltas
    if forward < 0 or backward > 0 or weight > 0:
        rule = "F must be at least 0, B and W at most 0: they free what F adds"
    elif not trained and not backward and not weight:
        return round(forward), 0, 0
    elif abs(sum(deltas)) > _ROUNDING * max(1.0, forward):
        rule = f"F, B and W sum to {sum(deltas):g}, must sum to 0"
    else:
        whole = min(round(forward), round(-backward))
        return round(forward), -whole, whole - round(forward)
    raise InputError(rule, key=f"memory of stage {stage}", value=tuple(deltas))
