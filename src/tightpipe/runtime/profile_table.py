"""Profiles: what stages cost, the instance made of it, and the plain table ``stage,kind,time,memory``."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..files import read_text
from ..instance import Instance, Memory, Objective, check_int

KINDS = ("F", "B", "W")
_HEADER = ["stage", "kind", "time", "memory"]

Samples = dict[tuple[int, str], list[float]]  # (stage, kind) -> times


@dataclass(frozen=True, slots=True)
class Profile:
    """What each stage costs.

    Parameters
    ----------
    forward, backward, weight
        Ticks (microseconds) per stage, at least 1.
    comm
        Ticks of a message.
    memory
        What F adds, B frees and W frees, per stage; None if it was not measured.
    limits
        Memory limit per device; None if the profile has none.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    weight: tuple[int, ...]
    comm: int = 0
    memory: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None = None
    limits: tuple[int, ...] | None = None

    def instance(
        self,
        *,
        devices: int,
        microbatches: int,
        placement: str = "v",
        limit: int | Sequence[int] | None = None,
        objective: Objective | str = Objective.DEVICE_SPAN,
    ) -> Instance:
        """Return the instance of the profiled stages.

        Raises
        ------
        InputError
            If the number of stages does not fit the placement, or a limit is given without memory.
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
        )


def read_table(path: str | Path) -> Profile:
    """Read a table ``stage,kind,time,memory``: kinds F, B, W of every stage, and a row of kind comm.

    Times are microseconds, memory is in any unit (F adds, B and W free; the memory column may be empty
    everywhere). The stage of the comm row is empty; without that row communication counts as 0. Of
    several rows of one stage and kind the smallest time counts.

    Raises
    ------
    InputError
        Naming file, line and rule, or the records that are missing.
    """
    try:
        return _from_rows(list(csv.reader(read_text(path).splitlines())))
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def _from_rows(rows: list[list[str]]) -> Profile:
    if not rows or [cell.strip() for cell in rows[0]] != _HEADER:
        raise InputError(f"must begin with {','.join(_HEADER)}", key="line 1", value=",".join(*rows[:1]))
    samples: Samples = {}
    memory: dict[tuple[int, str], int] = {}
    comm: list[float] = []
    for line, row in enumerate(rows[1:], 2):
        if len(row) != len(_HEADER):
            raise InputError(f"must have {len(_HEADER)} fields", key=f"line {line}", value=",".join(row))
        stage, kind, time, held = (cell.strip() for cell in row)
        if kind == "comm":
            comm.append(_number(time, f"line {line}.time"))
            continue
        if kind not in KINDS:
            raise InputError(f"must be one of {', '.join(KINDS)}, comm", key=f"line {line}.kind", value=kind)
        key = (_stage(stage, line), kind)
        samples.setdefault(key, []).append(_number(time, f"line {line}.time"))
        if held:
            memory[key] = round(_number(held, f"line {line}.memory"))
    return make_profile(samples, memory, min(comm, default=0.0))


def _stage(text: str, line: int) -> int:
    if not text.isdecimal():
        raise InputError("must be a stage number", key=f"line {line}.stage", value=text)
    return int(text)


def _number(text: str, key: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError("must be a number", key=key, value=text) from None
    if not abs(value) < 1e12:
        raise InputError("must be a finite number", key=key, value=text)
    return value


def make_profile(samples: Samples, memory: dict[tuple[int, str], int], comm: float) -> Profile:
    """Make a profile of the smallest times.

    Raises
    ------
    InputError
        Listing the stages and kinds that have no time, or memory for some but not for all.
    """
    stages = range(max((stage for stage, _ in samples), default=0) + 1)
    wanted = [(stage, kind) for stage in stages for kind in KINDS]
    _check_present("times", wanted, samples)
    if memory:
        _check_present("memory", wanted, memory)
    forward, backward, weight = (
        tuple(max(1, round(min(samples[stage, kind]))) for stage in stages) for kind in KINDS
    )
    held = _balanced([[memory[stage, kind] for stage in stages] for kind in KINDS]) if memory else None
    return Profile(forward, backward, weight, max(0, round(comm)), held)


def _check_present(what: str, wanted: list[tuple[int, str]], found: Iterable[tuple[int, str]]) -> None:
    missing = [f"{kind} of stage {stage}" for stage, kind in wanted if (stage, kind) not in set(found)]
    if missing:
        shown = ", ".join(missing[:6]) + (" and others" if len(missing) > 6 else "")
        raise InputError(f"{what} are missing: {shown}")


def _balanced(
    columns: list[list[int]],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return F, B and W so that they sum to zero: F as measured, B at most 0, W the rest."""
    forward = tuple(max(0, f) for f in columns[0])
    backward = tuple(-min(f, max(0, -b)) for f, b in zip(forward, columns[1], strict=True))
    weight = tuple(-f - b for f, b in zip(forward, backward, strict=True))
    return forward, backward, weight
