"""Cost laws: what a microbatch costs as a function of its lengths, and the instance that a batch makes.

A microbatch is a tuple of lengths: one sequence, or several that are packed. The linear maps of a layer take
time for each token, attention for each pair of tokens of a sequence, and launching kernels takes a fixed
time. So the law of a quantity is ``fixed + tokens T + squares Q``, where T is the sum of the lengths and Q
the sum of their squares. For a single sequence of length L that is a + b L + c L^2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from typing import Any

import numpy as np

from ..base.errors import InputError, check_int, is_list, plain
from ..kernels.arrays import Floats, Ints
from .costs import Costs, Memory, MicrobatchClass, Objective, Step
from .instance import MOST_OPERATIONS, Instance
from .placement import Placement

Microbatch = tuple[int, ...]
"""The lengths of the sequences of a microbatch, in tokens."""
MOST_TOKENS = 10**8
"""The most tokens of one sequence."""


@dataclass(frozen=True, slots=True)
class Law:
    """A quantity of a microbatch: ``fixed + tokens T + squares Q``, with T and Q as this module says."""

    fixed: float = 0.0
    tokens: float = 0.0
    squares: float = 0.0

    def at(self, total: float, squares: float) -> float:
        """Return the quantity at so many tokens, whose lengths have this sum of squares."""
        return self.fixed + self.tokens * total + self.squares * squares

    def __add__(self, other: Law) -> Law:
        return Law(self.fixed + other.fixed, self.tokens + other.tokens, self.squares + other.squares)

    def __mul__(self, factor: float) -> Law:
        return Law(factor * self.fixed, factor * self.tokens, factor * self.squares)

    def __bool__(self) -> bool:
        return bool(self.fixed or self.tokens or self.squares)


Laws = tuple[Law, ...]
"""A law for each stage."""
COEFFICIENTS = ("fixed", "tokens", "squares")
_ROUNDING = 1e-6  # laws of what F, B and W add may miss the sum 0 by this share of the largest


def fit(
    samples: Sequence[tuple[Microbatch, float]], powers: tuple[str, ...] = COEFFICIENTS
) -> tuple[Law, float]:
    """Return the law that fits measured values best, and the largest relative error that it leaves.

    The sum of the squares of the relative errors is least among all laws without negative coefficients, so
    that the law is positive at every length, also beyond those measured. Which coefficients are above 0 in
    the best law is found by trying all subsets: for the right subset, least squares without signs give it.

    Parameters
    ----------
    samples
        Microbatches, each with the value that was measured, above 0; or all values are 0.
    powers
        The coefficients that may differ from 0.
    """
    measured = np.array([value for _, value in samples])
    if not measured.any():
        return Law(), 0.0
    rows = np.array([[1.0, sum(lengths), squares_of(lengths)] for lengths, _ in samples])
    rows = rows[:, [COEFFICIENTS.index(name) for name in powers]] / measured[:, None]
    found: list[tuple[float, dict[str, float], float]] = []
    for count in range(1, len(powers) + 1):
        for chosen in combinations(range(len(powers)), count):
            part = rows[:, chosen]
            scale = np.abs(part).max(0)
            solved = np.linalg.lstsq(part / scale, np.ones(len(rows)), rcond=None)[0] / scale
            if solved.min() >= 0:
                errors = part @ solved - 1
                law = {powers[i]: float(value) for i, value in zip(chosen, solved, strict=True)}
                found.append((float(errors @ errors), law, float(np.abs(errors).max())))
    _, law, error = min(found, key=lambda one: one[0])
    return Law(**law), error


def squares_of(lengths: Microbatch) -> int:
    """Return the sum of the squares of the lengths."""
    return sum(length * length for length in lengths)


def microbatches_of(lengths: Any, tokens: Any = None, key: str = "lengths") -> tuple[Microbatch, ...]:
    """Return the microbatches of a batch.

    Parameters
    ----------
    lengths
        Lengths of sequences, in tokens; or for each microbatch a length or a list of the lengths that it
        packs.
    tokens
        The most tokens of a microbatch. If it is not None, `lengths` has single sequences, which are packed:
        the longest first, each into the first microbatch that has room for it (first fit decreasing, which
        takes at most 11/9 of the least possible number of microbatches, and one more). The microbatches are
        then in the sequence of their first sequences. None takes the microbatches as they are.
    key
        The name of the lengths in errors.

    Raises
    ------
    InputError
        If there is no length, if a length is no integer or below 1, or if a sequence is longer than `tokens`.
    """
    lengths = plain(lengths)
    if not is_list(lengths) or not lengths:
        raise InputError("must be a list of at least one length", key=key, value=lengths)
    if len(lengths) > MOST_OPERATIONS:
        raise InputError(f"must be at most {MOST_OPERATIONS} lengths", key=key, value=len(lengths))
    if tokens is not None:
        room = check_int("tokens", tokens, 1)
        single = [check_int(f"{key}[{i}]", length, 1, MOST_TOKENS) for i, length in enumerate(lengths)]
        return _packed(single, room, key)
    ready: list[Microbatch] = []
    for i, given in enumerate(lengths):
        if not is_list(given):
            ready.append((check_int(f"{key}[{i}]", given, 1, MOST_TOKENS),))
        elif not given:
            raise InputError("must be at least one length", key=f"{key}[{i}]", value=given)
        else:
            ready.append(tuple(check_int(f"{key}[{i}][{j}]", v, 1, MOST_TOKENS) for j, v in enumerate(given)))
    return tuple(ready)


def _packed(lengths: Sequence[int], room: int, key: str) -> tuple[Microbatch, ...]:
    packs: list[list[int]] = []  # the numbers of the sequences of each microbatch
    left: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if lengths[i] > room:
            raise InputError(f"must be at most tokens = {room}", key=f"{key}[{i}]", value=lengths[i])
        at = next((k for k, free in enumerate(left) if free >= lengths[i]), len(packs))
        if at == len(packs):
            packs.append([])
            left.append(room)
        packs[at].append(i)
        left[at] -= lengths[i]
    return tuple(tuple(lengths[i] for i in pack) for pack in sorted(map(sorted, packs)))


@dataclass(frozen=True, slots=True)
class CostLaw:
    """The costs of all stages as laws, from which every batch of microbatches makes an instance.

    Parameters
    ----------
    placement
        Which device runs which stage.
    forward, backward, weight
        Ticks of F, B and W at each stage. A law that is 0 throughout means that the stage has no such
        operation.
    fused
        Ticks of BW at each stage; None for those of B and W together.
    comm
        Ticks of a message: a number, a matrix, or a law. An instance has one time for the messages of all
        microbatches, so a law is taken at the mean microbatch.
    memory
        What F, B and W add at each stage, the sum of which is 0; None if memory does not matter. What B and W
        add is negative. Where neither exists, F holds its memory only while it runs.
    limit
        Memory limit: a number, one per device, or None.
    objective, step, link_occupancy
        As in `Instance` and `Costs`.

    Raises
    ------
    InputError
        If a law has another number of entries than there are stages.
    """

    placement: Placement
    forward: Laws
    backward: Laws
    weight: Laws
    fused: Laws | None = None
    comm: Law | int | tuple[tuple[int, ...], ...] = 0
    memory: tuple[Laws, Laws, Laws] | None = None
    limit: int | tuple[int, ...] | None = None
    objective: Objective = Objective.DEVICE_SPAN
    step: Step | None = None
    link_occupancy: int = 0

    def __post_init__(self) -> None:
        named = {"forward": self.forward, "backward": self.backward, "weight": self.weight}
        if self.fused is not None:
            named["fused"] = self.fused
        if self.memory is not None:
            keys = ("memory.forward", "memory.backward", "memory.weight")
            named |= dict(zip(keys, self.memory, strict=True))
        for key, laws in named.items():
            if len(laws) != self.placement.stages:
                rule = f"has {len(laws)} entries, must have one per stage: {self.placement.stages}"
                raise InputError(rule, key=key, value=len(laws))
        for stage, deltas in enumerate(zip(*self.memory or ((), (), ()), strict=True)):
            self._check_deltas(stage, deltas)

    def _check_deltas(self, stage: int, deltas: tuple[Law, ...]) -> None:
        if not (self.backward[stage] or self.weight[stage]):
            return
        for name in COEFFICIENTS:
            parts = [getattr(delta, name) for delta in deltas]
            if abs(sum(parts)) > _ROUNDING * max(map(abs, parts)):
                rule = f"the {name} of forward, backward and weight must sum to 0 at stage {stage}"
                raise InputError(rule, key="memory", value=tuple(parts))

    def instance(self, microbatches: Any) -> Instance:
        """Return the instance of a batch: microbatch i of the batch is microbatch i of the instance.

        Each microbatch is given by its length, or the lengths of the sequences that it packs.

        Raises
        ------
        InputError
            If there is no microbatch or a length below 1, or if a law gives a time of 0 or less at one of the
            microbatches; the message names law, stage and microbatch.
        """
        batch = microbatches_of(microbatches)
        points = [(sum(one), squares_of(one)) for one in batch]
        known = self._classes(list(dict.fromkeys(points)))
        classes = [replace(known[point], count=len(list(equal))) for point, equal in groupby(points)]
        first = classes[0]
        return Instance(
            self.placement,
            len(batch),
            Costs(
                *(first.forward, first.backward, first.weight, self._comm(points)),  # type: ignore[arg-type]
                link_occupancy=self.link_occupancy,
                fused=first.fused,
            ),
            None if first.memory is None else replace(first.memory, limit=self.limit),
            self.objective,
            step=self.step,
            classes=classes if len(classes) > 1 else (),
        )

    def _comm(self, points: list[Point]) -> Any:
        if not isinstance(self.comm, Law):
            return self.comm
        total, squares = (sum(values) / len(points) for values in zip(*points, strict=True))
        return round(max(0.0, self.comm.at(total, squares)))

    def _classes(self, points: list[Point]) -> dict[Point, MicrobatchClass]:
        """Return the costs of a microbatch of each of these totals and sums of squares."""
        trained = [bool(b) and bool(w) for b, w in zip(self.backward, self.weight, strict=True)]
        laws = {"forward": self.forward, "backward": self.backward, "weight": self.weight}
        if self.fused is not None:
            laws["fused"] = self.fused
        times = {key: _ticks(key, laws[key], points) for key in laws}
        if self.fused is not None:  # elsewhere it means nothing, and may be anything
            times["fused"] = np.where(trained, times["fused"], 1)
        memory = self._deltas(points) if self.memory is not None else None
        found = {}
        for i, point in enumerate(points):
            values: dict[str, Any] = {key: tuple(ticks[i].tolist()) for key, ticks in times.items()}
            held = None if memory is None else Memory(*(tuple(delta[i].tolist()) for delta in memory))
            found[point] = MicrobatchClass(1, **values, memory=held)
        return found

    def _deltas(self, points: list[Point]) -> tuple[Ints, Ints, Ints]:
        """Return what F, B and W add, in whole units whose sum is 0 where there is a B or a W."""
        forward, backward, _ = (_values(laws, points) for laws in self.memory or ())
        held = np.rint(forward).astype(np.int64)
        if held.min() < 0:
            i, stage = (int(at) for at in np.argwhere(held < 0)[0])
            _refuse("memory.forward", stage, float(forward[i, stage]), points[i], "0 or more")
        b, w = (np.array([bool(law) for law in laws]) for laws in (self.backward, self.weight))
        freed = np.clip(np.rint(backward).astype(np.int64), -held, 0)
        freed = np.where(b, np.where(w, freed, -held), 0)
        return held, freed, np.where(w, -held - freed, 0)


Point = tuple[int, int]
"""Tokens of a microbatch, and the sum of the squares of its lengths."""


def _values(laws: Laws, points: list[Point]) -> Floats:
    """Return the values of laws, one row for each point and one column for each stage."""
    rows = np.array([(1, *point) for point in points], float)
    return np.asarray(rows @ np.array([[law.fixed, law.tokens, law.squares] for law in laws]).T)


def _ticks(name: str, laws: Laws, points: list[Point]) -> Ints:
    """Return the ticks, at least 1; 0 where a law other than that of F is 0 throughout."""
    values = _values(laws, points)
    there = np.array([name == "forward" or bool(law) for law in laws])
    wrong = np.argwhere(there & ~(values > 0))
    if len(wrong):
        i, stage = map(int, wrong[0])
        _refuse(name, stage, float(values[i, stage]), points[i], "above 0")
    return np.where(there, np.maximum(1, np.rint(values).astype(np.int64)), 0)


def _refuse(name: str, stage: int, value: float, point: Point, rule: str) -> None:
    at = f"the law of stage {stage} at a microbatch of {point[0]} tokens"
    raise InputError(f"must be {rule}: {at}", key=name, value=round(value, 3))
