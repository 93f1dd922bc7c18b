"""Which activations leave a device and when, at the times of a schedule, planned backward in time.

The end of a schedule is where copies are scarce: backwards follow each other fast, and what they leave to
their W's fills the memory. So this rule starts there. It reads the schedule backward, where a copy back takes
an activation away and a copy out returns it. Whenever an engine is free while the device would hold too much,
that activation leaves which the device needs last, as in Belady's rule for caches. Each returns as late as
the engine and the others allow. If one engine makes both kinds of copies, an activation also returns
earlier, where memory is free, if the engine could else not take away another one before.

References
----------
L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal, 1966:
what is needed last leaves first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Schedule
from tightpipe.model.simulate import memory_events

_NEVER = 2**60


class Stay(NamedTuple):
    """What lies between an F and its backward: kind of the unit, and two ticks."""

    stage: int
    unit: int
    begin: int  # end of the F
    until: int  # start of the backward

    @property
    def reversed(self) -> Stay:
        """The same with time read backward: all ticks are negated."""
        return Stay(self.stage, self.unit, -self.until, -self.begin)


class Trip(NamedTuple):
    """A copy out and a copy back of what leaves, with their starts in ticks."""

    stay: Stay
    out: int
    back: int


class _Over(NamedTuple):
    """The intervals of time in which a device holds more than its limit, shape (M,) each."""

    begin: Ints
    end: Ints

    def meets(self, begin: int, end: int) -> bool:
        """Return whether an interval overlaps with any of these."""
        return bool(((self.begin < end) & (self.end > begin)).any())


@dataclass(slots=True)
class _Plan:
    """The copies of one device so far. Time is read backward, and so an L comes before its O."""

    limit: int
    duplex: bool
    ticks: dict[int, tuple[int, int]]  #: of the L and of the O, by stage
    memory: dict[int, int]  #: what leaves, by stage
    times: list[int]  #: when the device takes or frees memory, in ascending sequence
    deltas: list[int]  #: how much it takes then
    away: dict[Stay, int] = field(default_factory=dict)  #: starts of L's whose O's may still change
    made: list[tuple[Stay, int, int]] = field(default_factory=list)  #: all others, with the starts of both

    def returns(self, more: Iterable[Stay] = ()) -> dict[Stay, int]:
        """Return the latest starts of the O's of all that is away, and of more, each in time for its F."""
        late, found = _NEVER, {}
        for stay in sorted((*self.away, *more), key=attrgetter("until"), reverse=True):
            late = found[stay] = min(late, stay.until) - self.ticks[stay.stage][1]
        return found

    def over(self, returns: dict[Stay, int]) -> _Over:
        """Return where the device holds too much, if all that is away returns at these ticks."""
        times, deltas = self.times.copy(), self.deltas.copy()
        for stay, tick in returns.items():
            at = bisect_right(times, tick)
            times.insert(at, tick)
            deltas.insert(at, self.memory[stay.stage])
        ticks, held = np.array(times), np.cumsum(deltas)
        there = (held[:-1] > self.limit) & (ticks[:-1] < ticks[1:])
        return _Over(ticks[:-1][there], ticks[1:][there])

    def last_needed(self, left: list[Stay], tick: int, over: _Over) -> Stay | None:
        """Return what leaves at a tick and helps: of all that can, what the device needs last."""
        ends = self.ends if self.duplex else {}  # else the engine makes one copy after another
        for stay in sorted(left, key=attrgetter("until"), reverse=True):
            gone = tick + self.ticks[stay.stage][0]
            if stay.begin > tick or stay.until < gone or not over.meets(gone, stay.until):
                continue
            returns = self.returns([stay])
            in_time = all(at >= ends.get(one, gone) for one, at in returns.items())
            if in_time and over.meets(gone, returns[stay]):
                return stay
        return None

    @property
    def ends(self) -> dict[Stay, int]:
        """The ends of the L's of all that is away."""
        return {stay: begin + self.ticks[stay.stage][0] for stay, begin in self.away.items()}

    def leave(self, stay: Stay, tick: int) -> int:
        """Let an activation leave at a tick, and return when its copy ends."""
        self.away[stay] = tick
        return self._change(tick + self.ticks[stay.stage][0], -self.memory[stay.stage])

    def settle(self, stay: Stay, tick: int) -> int:
        """Let an activation return at a tick, and return when its copy ends."""
        self.made.append((stay, self.away.pop(stay), tick))
        return self._change(tick, self.memory[stay.stage]) + self.ticks[stay.stage][1]

    def _change(self, tick: int, delta: int) -> int:
        at = bisect_right(self.times, tick) if delta > 0 else bisect_left(self.times, tick)
        self.times.insert(at, tick)
        self.deltas.insert(at, delta)
        return tick

    def could_return(self, stay: Stay, returns: dict[Stay, int], tick: int) -> bool:
        """Return whether something may return at a tick, earlier than it has to, and there is room for it."""
        earlier = self.over({**returns, stay: tick})
        return not earlier.meets(tick, returns[stay])

    def trips(self) -> list[Trip]:
        """Return all copies, with time read forward."""
        found = []
        for stay, back, out in self.made:
            ticks_back, ticks_out = self.ticks[stay.stage]
            found.append(Trip(stay.reversed, -out - ticks_out, -back - ticks_back))
        return found


def last_needed_first(
    instance: Instance, schedule: Schedule, device: int, waits: bool = False
) -> list[Trip] | None:
    """Return what leaves a device and when, so that it stays within its limit; None if it cannot.

    If copies may come late (`waits`), what is still too much leaves and comes back as if engines were free.
    """
    limit, offload = instance.memory_limit(device), instance.offload
    if limit is None or offload is None:
        return []
    stays = sorted(stay.reversed for stay in stays_of(instance, schedule, device))
    plan = _plan(instance, schedule, device, limit, offload.duplex)
    left = _run(plan, stays)
    for stay, out in plan.returns().items():
        plan.settle(stay, out)
    if waits:
        _as_if_free(plan, left)
        if len(plan.over({}).begin):  # what has left by then is perhaps back too early
            plan = _plan(instance, schedule, device, limit, offload.duplex)
            _as_if_free(plan, stays)
    return None if len(plan.over({}).begin) else plan.trips()


def _plan(instance: Instance, schedule: Schedule, device: int, limit: int, duplex: bool) -> _Plan:
    """Return a plan in which nothing leaves."""
    stages, (times, deltas) = instance.placement.stages_on(device), events_of(schedule, device)
    ticks = {s: (instance.duration(OpKind.L, s), instance.duration(OpKind.O, s)) for s in stages}
    memory = {s: instance.leaves(s) for s in stages}
    return _Plan(limit, duplex, ticks, memory, (-times[::-1]).tolist(), (-deltas[::-1]).tolist())


def _run(plan: _Plan, stays: list[Stay]) -> list[Stay]:
    """Let leave what a device needs last, until its memory suffices or time is up; return what stays."""
    left, tick = list(stays), min((stay.begin for stay in stays), default=0)
    shortest = min((min(ticks) for ticks in plan.ticks.values()), default=0)
    returns = plan.returns()
    over = plan.over(returns)
    while len(over.begin) and tick < _NEVER:
        first = min(returns, key=returns.__getitem__) if returns and not plan.duplex else None
        due = _NEVER if first is None else returns[first]
        leaves = None if due <= tick else plan.last_needed(left, tick, over)
        crowded = first is not None and due - tick < shortest
        if leaves is not None:
            left.remove(leaves)
            tick = plan.leave(leaves, tick)
        elif first is not None and (due <= tick or (crowded and plan.could_return(first, returns, tick))):
            in_time = tick == due
            tick = plan.settle(first, tick)
            if in_time:  # as planned
                del returns[first]
                continue
        else:
            later = [stay.begin for stay in left if stay.begin > tick]
            later += plan.times[bisect_right(plan.times, tick) :][:1] if crowded else []
            tick = min((*later, due))
            continue
        returns = plan.returns()
        over = plan.over(returns)
    return left


def _as_if_free(plan: _Plan, left: list[Stay]) -> None:
    """Let more leave until memory suffices, each for as long as it could if no other copy took an engine."""
    for stay in sorted(left, key=lambda stay: stay.begin - stay.until):
        over = plan.over({})
        if not len(over.begin):
            break
        first, second = plan.ticks[stay.stage]
        gone, returns = stay.begin + first, stay.until - second
        if gone <= returns and over.meets(gone, returns):
            plan.leave(stay, stay.begin)
            plan.settle(stay, returns)


def events_of(schedule: Schedule, device: int) -> tuple[Ints, Ints]:
    """Return the ticks at which a device takes or frees memory, and how much; at one tick it frees first."""
    ((times, held),) = memory_events(schedule, [device])
    return times, np.diff(held, prepend=0)


def stays_of(instance: Instance, schedule: Schedule, device: int) -> Iterator[Stay]:
    """Yield what may leave a device."""
    order, rows = schedule.order, schedule.order.rows(device)
    operations, starts = order.operations[rows].tolist(), schedule.start[rows].tolist()
    needed: dict[tuple[int, int], int] = {}
    for (kind, stage, unit), start in zip(operations, starts, strict=True):
        if kind != OpKind.F:
            needed.setdefault((stage, unit), start)  # a W runs after its B
    for (kind, stage, unit), end in zip(operations, schedule.end[rows].tolist(), strict=True):
        if kind == OpKind.F and instance.offloads(stage):
            yield Stay(stage, unit, end, needed[stage, unit])
