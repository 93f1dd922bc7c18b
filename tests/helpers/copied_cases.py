"""Tiny instances with offload by seed, and their optimum by a search over states that shares no code."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product

from helpers.cases import uniform
from tightpipe import Instance, Memory, OpKind
from tightpipe.model.costs import Offload

F, B, W, OUT, BACK = OpKind.F, OpKind.B, OpKind.W, OpKind.O, OpKind.L
_LATER, _DONE = -1, 0  # what is left of an operation that has not started, and of one that has ended
_SHAPES = (("linear", 1, 3), ("linear", 2, 2), ("v", 1, 2), ("loop", 1, 2), ("linear", 2, 3))

Left = tuple[int, ...]  # ticks that are left of each operation of a unit
State = tuple[Left, ...]


def copied_case(seed: int) -> Instance:
    """Short operations and scarce memory of a few devices; something may leave most stages."""
    rng = random.Random(seed)
    placement, devices, microbatches = rng.choice(_SHAPES)
    stages = devices * (1 if placement == "linear" else 2)
    held = [rng.randint(1, 3) for _ in range(stages)]
    kept = [rng.randint(0, f) for f in held]
    memory = Memory(held, [k - f for k, f in zip(kept, held, strict=True)], [-k for k in kept])
    times = [[rng.randint(1, 4) for _ in range(stages)] for _ in range(3)]
    away = [rng.randint(0, f) for f in held]
    away[0] = held[0] if not any(away) else away[0]
    copies = Offload(
        away, *([rng.randint(1, 3) for _ in range(stages)] for _ in range(2)), rng.random() < 0.7
    )
    objective = rng.choice(["makespan", "device_span"])
    free = uniform(devices, microbatches, times, placement=placement, objective=objective, memory=memory)
    limits = [_limit(rng, free, d, away) for d in range(devices)]
    return Instance(
        free.placement,
        microbatches,
        free.costs,
        Memory(memory.forward, memory.backward, memory.weight, limits),
        free.objective,
        offload=copies,
    )


def _limit(rng: random.Random, free: Instance, device: int, away: list[int]) -> int:
    """At least what one microbatch needs there if all that may leave is away as soon as it can be."""
    stages, stays, least = free.placement.stages_on(device), 0, 0
    for stage in stages:
        least = max(least, stays + free.memory_delta(F, stage))
        stays += free.memory_delta(F, stage) - away[stage]
    return least + rng.randint(0, 2)


@dataclass(frozen=True)
class _Operation:
    kind: OpKind
    stage: int
    ticks: int
    engine: tuple[int, str]


class Ticks:
    """All schedules without joint operations, messages or a step, from one event to the next.

    A state has for each unit what is left of its operations. Whatever a schedule starts, it may start when
    another operation ends, or at the beginning.
    """

    def __init__(self, instance: Instance) -> None:
        assert not any(map(any, instance.costs.comm))
        self.instance, self.last = instance, instance.stages - 1
        self.operations = [
            _Operation(kind, s, instance.duration(kind, s), self._engine(kind, s))
            for kind, s in product((F, B, W, OUT, BACK), range(instance.stages))
            if instance.has(kind, s)
        ]
        self.at = {(op.kind, op.stage): k for k, op in enumerate(self.operations)}

    def _engine(self, kind: OpKind, stage: int) -> tuple[int, str]:
        copies = "O" if kind is OUT or not self.instance.offload.duplex else "L"
        return self.instance.placement.routes[0][stage], copies if kind in (OUT, BACK) else "compute"

    def least_makespan(self) -> int:
        """The least time at which everything has ended; the best first, by what each device has to do yet."""
        first: State = ((_LATER,) * len(self.operations),) * self.instance.microbatches
        waiting, seen = [(self._work_left(first), 0, first)], set()
        while waiting:
            _, now, state = heappop(waiting)
            if state in seen:
                continue
            seen.add(state)
            if self._over(state):
                return now
            for after, ticks in self._next(state):
                if after not in seen:
                    heappush(waiting, (now + ticks + self._work_left(after), now + ticks, after))
        raise AssertionError("there is no schedule")

    def _over(self, state: State) -> bool:
        return all(
            left == _DONE or (left == _LATER and op.kind in (OUT, BACK))
            for unit in state
            for op, left in zip(self.operations, unit, strict=True)
        )

    def _work_left(self, state: State) -> int:
        work = [0] * self.instance.devices
        for unit in state:
            for op, left in zip(self.operations, unit, strict=True):
                if op.engine[1] == "compute":
                    work[op.engine[0]] += op.ticks if left == _LATER else left
        return max(work)

    def _next(self, state: State) -> Iterator[tuple[State, int]]:
        """Start any ready operations on idle engines, and go on to the next end of an operation."""
        ready: dict[tuple[int, str], list[tuple[int, int] | None]] = {}
        for m, unit in enumerate(state):
            for k, left in enumerate(unit):
                if left == _LATER and self._is_ready(unit, k):
                    ready.setdefault(self.operations[k].engine, [None]).append((m, k))
        busy = {self.operations[k].engine for unit in state for k, left in enumerate(unit) if left > 0}
        choices = [found for engine, found in ready.items() if engine not in busy]
        for chosen in product(*choices):
            after = [list(unit) for unit in state]
            for m, k in filter(None, chosen):
                after[m][k] = self.operations[k].ticks
            running = [left for unit in after for left in unit if left > 0]
            if running and self._fits(after) and self._is_consistent(after):
                ticks = min(running)
                yield tuple(sorted(tuple(x - ticks if x > 0 else x for x in unit) for unit in after)), ticks

    def _is_ready(self, unit: Left, k: int) -> bool:
        """Whether all that an operation waits for has ended; the backward waits for a copy that has begun."""
        op = self.operations[k]
        kind, s = op.kind, op.stage
        if kind is F:
            return s == 0 or self._ended(unit, F, s - 1)
        if kind is W:
            return self._ended(unit, B, s)
        if kind is B:
            path = self._ended(unit, F, s) if s == self.last else self._ended(unit, B, s + 1)
            copied = (OUT, s) in self.at and unit[self.at[OUT, s]] != _LATER
            return path and (not copied or self._ended(unit, BACK, s))
        if kind is OUT:
            return self._ended(unit, F, s) and unit[self.at[B, s]] == _LATER
        return self._ended(unit, OUT, s)

    def _ended(self, unit: Left, kind: OpKind, stage: int) -> bool:
        return unit[self.at[kind, stage]] == _DONE

    def _is_consistent(self, state: list[list[int]]) -> bool:
        """Whether no copy and the backward that would have to wait for it have started at the same time."""
        return all(
            unit[k] == _LATER
            or unit[self.at[B, op.stage]] == _LATER
            or unit[self.at[BACK, op.stage]] == _DONE
            for unit in state
            for k, op in enumerate(self.operations)
            if op.kind is OUT
        )

    def _fits(self, state: list[list[int]]) -> bool:
        held = [0] * self.instance.devices
        for unit in state:
            for op, left in zip(self.operations, unit, strict=True):
                takes = op.kind in (F, BACK) and left != _LATER
                if takes or (op.kind not in (F, BACK) and left == _DONE):
                    held[op.engine[0]] += self.instance.memory_delta(op.kind, op.stage)
        return all(held[d] <= self.instance.memory_limit(d) for d in range(self.instance.devices))
