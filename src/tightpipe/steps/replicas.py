"""The microbatches of a step are divided among data-parallel replicas, and ordered in each; with a bound."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil, inf
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tightpipe.solver.bounds.formulas import best_bound

from ..base.errors import ContradictionError, InputError, NoScheduleError, check_int
from ..base.interruption import raise_again, reason_of
from ..kernels.arrays import Ints
from ..model.instance import Instance
from ..model.law import CostLaw, Law, Microbatch, squares_of
from ..model.metrics import cost, reduced_in_turn
from ..model.operation import OpKind
from ..model.result import Result
from ..model.schedule import Schedule

if TYPE_CHECKING:
    from .step_planner import StepPlanner

_ALONE = 4  # microbatches of which a bound alone is computed, the longest ones


class Loads(NamedTuple):
    """What each microbatch takes on each device, in ticks; arrays of shape (microbatches, devices)."""

    work: Ints  # least time of its operations
    until_last_b: Ints  # least time of its F's and B's
    head: Ints  # from when the microbatch may begin until the device may begin with it
    tail: Ints  # from the end of its last B on the device to the end of its last operation


def loads_of(instance: Instance) -> Loads:
    """Return the loads of the microbatches of an instance, whose placement has one route."""
    shape = len(instance.class_counts), instance.devices
    loads = Loads(*(np.zeros(shape, np.int64) for _ in Loads._fields))
    for c in range(shape[0]):
        _add_loads(instance, c, Loads(*(table[c] for table in loads)))
    classes = [instance.mb_class(m) for m in range(instance.microbatches)]
    return Loads(*(table[classes] for table in loads))


def _add_loads(instance: Instance, c: int, loads: Loads) -> None:
    """Set the loads of the microbatches of class `c`, in arrays of shape (devices,)."""
    route, step = instance.placement.routes[0], instance.barrier
    least_b = [
        min(instance.duration(OpKind.B, s, c), instance.duration(OpKind.BW, s, c))
        for s in range(instance.stages)
    ]
    for stage, device in enumerate(route):
        forward = instance.duration(OpKind.F, stage, c)
        loads.work[device] += forward + instance.least_backward(stage, c)
        loads.until_last_b[device] += forward + least_b[stage]
    if not instance.whole:  # the span of a device knows nothing of the others
        return
    first = {device: stage for stage, device in reversed(list(enumerate(route)))}
    begin = 0
    for stage, device in enumerate(route):
        begin = max(begin, step.ready[stage] if step is not None else 0)  # type: ignore[index]
        if stage == first[device]:
            loads.head[device] = begin
        if stage + 1 < len(route):
            begin += instance.duration(OpKind.F, stage, c) + instance.comm(device, route[stage + 1])
    # in place of a BW a B and a W are counted that take no longer together (`solver.bounds.relaxed`)
    after = instance.least_backward(0, c)
    if instance.has(OpKind.B, 0, c):
        loads.tail[route[0]] = after - least_b[0]
    for stage, (before, device) in enumerate(pairwise(route), 1):
        if not instance.has(OpKind.B, stage, c):
            after = instance.least_backward(stage, c)
            continue
        waits = instance.has_backward(stage - 1, c)
        tail = after + instance.comm(device, before) if waits else 0
        if stage == first[device]:
            loads.tail[device] = tail
        after = least_b[stage] + tail


def assignment_bound(law: CostLaw, batch: tuple[Microbatch, ...], replicas: int) -> int:
    """Return a lower bound of the cost of the slowest replica, however microbatches are assigned.

    *One device.* Let x be what each microbatch takes of a device, and let there be R replicas. Some replica
    has at least 1/R of the sum of x, and as x is whole, the sum divided by R and rounded up. Of the kR + 1
    microbatches with the largest x, some replica has k + 1 or more, which take at least as long as the k + 1
    smallest of these (as for bins, Martello and Toth, 1990). Let L(x) be the largest of these numbers. With x
    the least work, L(x) is a bound of the span of the device in some replica. Where the time of all devices
    counts, no device begins before some microbatch has passed the stages before its first one, which takes at
    least the shortest `head`. With x the time of F's and B's alone, the device works L(x) until its last B
    ends. This B is at the device's first stage, since every B at another of its stages has one at the first
    stage after it. Then the B's of all stages before it follow, which take at least the shortest `tail`.

    *One microbatch.* A schedule of a replica without all but one of its microbatches is a schedule of that
    one, and costs no more. So the bound of each microbatch alone holds for the replica that has it.

    *Messages.* Where a law gives their time, it is that of the mean microbatch of a replica. Laws are sums of
    what a microbatch has, so this is at least what the law gives for some microbatch of the replica, and all
    bounds take the least of the batch.

    An optimizer comes on top, at the end of the device's own operations or of the last ones of all.

    Parameters
    ----------
    law
        The costs.
    batch
        The lengths of each microbatch.
    replicas
        Number of replicas R.
    """
    if isinstance(law.comm, Law):
        least = min(law.comm.at(sum(one), squares_of(one)) for one in batch)
        law = replace(law, comm=max(0, ceil(least - 0.51)))  # rounded, and 0.01 for errors of floats
    instance = law.instance(batch)
    loads, step = loads_of(instance), instance.barrier
    optimizer: tuple[int, ...] = (0,) * instance.devices if step is None else step.optimizer  # type: ignore[assignment]
    longest = np.argsort(-loads.work.sum(1), kind="stable")[:_ALONE]
    bounds = [best_bound(law.instance([batch[m]])).value for m in longest]
    for device in range(instance.devices):
        head, tail = int(loads.head[:, device].min()), int(loads.tail[:, device].min())
        bounds.append(head + _largest_share(loads.work[:, device], replicas) + optimizer[device])
        if instance.whole:
            until = _largest_share(loads.until_last_b[:, device], replicas)
            bounds.append(head + until + tail + min(optimizer))
    return max(bounds)


def _largest_share(ticks: Ints, replicas: int) -> int:
    """Return L of `assignment_bound`: what the replica takes at least that has most of these ticks."""
    ordered = np.sort(ticks)[::-1]
    sums = np.concatenate([[0], np.cumsum(ordered)])
    found = -(-int(sums[-1]) // replicas)
    for k in range((len(ordered) - 1) // replicas + 1):
        end = k * replicas + 1
        found = max(found, int(sums[end] - sums[end - k - 1]))
    return found


_MOST_PARTITIONS = 2000  # up to so many ways to divide the microbatches, all are tried
_LEVELS = 2  # how often the bound of a replica is raised: by formulas, by a solve
_TRIED = 8  # moves and swaps whose schedules are computed before the search looks for a new slowest replica
_QUICK_SHARE = 0.4  # share of the time for list schedules of assignments
Part = tuple[int, ...]
"""The numbers of the microbatches of one replica."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The microbatches of a step, divided among replicas and ordered in each of them."""

    #: for each replica the numbers of its microbatches in the batch. Microbatch i of the replica's schedule
    #: is the i-th of them.
    parts: tuple[Part, ...]
    results: tuple[Result, ...]  #: the result of each replica
    #: ticks of the step: the largest cost of a replica. Where gradients are reduced (objective `step`), a
    #: stage is reduced once the last replica has ended it, after which the optimizer runs.
    cost: int
    bound: int  #: no assignment and no orders cost less
    seconds: float  #: wall time of the search
    reason: str = ""  #: `interrupted` or `terminated` if a signal ended the search early

    @property
    def gap(self) -> float:
        """Share of the cost that lies above the bound."""
        return (self.cost - self.bound) / self.cost


def joint_cost(schedules: Sequence[Schedule]) -> int:
    """Return the cost of a step whose replicas run these schedules.

    Without reductions and optimizers, it is the cost of the slowest replica. With them, a device reduces a
    stage once all replicas have ended it, one stage after another in the sequence in which that happens, and
    then runs its optimizer.
    """
    step = schedules[0].instance.barrier
    if step is None:
        return max(map(cost, schedules))
    done = 0
    for device in range(schedules[0].order.devices):
        ended: dict[int, int] = {}
        for schedule in schedules:
            rows = schedule.order.rows(device)
            stages, ends = schedule.order.operations[rows, 1], schedule.end[rows]
            for stage in set(stages.tolist()):
                ended[stage] = max(ended.get(stage, 0), int(ends[stages == stage].max()))
        reduced = [end for _, _, end in reduced_in_turn(ended, step)]
        done = max(done, max([*ended.values(), *reduced]) + step.optimizer[device])  # type: ignore[index]
    return done


class AssignmentSearch:
    """Divides a batch among replicas before a time of `perf_counter`, and orders the microbatches of each.

    The longest microbatches are dealt first, each to the replica with the least work (Graham's LPT). Moves
    and swaps then balance the work, and after that the costs of list schedules. If there are few ways to
    divide the batch, all are considered, the most promising first, until none can be better than the best
    known. Else the rest of the time goes to the orders of the replicas. Microbatches are numbered by rising
    lengths, and parts ascend, so that parts of equal lengths have the same instance, which is solved once.
    """

    def __init__(
        self, solver: StepPlanner, batch: tuple[Microbatch, ...], replicas: int, deadline: float
    ) -> None:
        law = solver.law
        if check_int("replicas", replicas, 1) > len(batch):
            rule = f"must be at most the number of microbatches, {len(batch)}"
            raise InputError(rule, key="replicas", value=replicas)
        if len(law.placement.routes) > 1:
            rule = "must have one route, to assign microbatches to replicas"
            raise InputError(rule, key="placement", value=law.placement.name)
        self.names = sorted(range(len(batch)), key=lambda m: batch[m])
        self.batch = tuple(batch[m] for m in self.names)
        self.solver, self.law, self.replicas = solver, law, replicas
        self.deadline, self.begun = deadline, perf_counter()
        self.quick: dict[tuple[Microbatch, ...], Result] = {}
        self.found: dict[tuple[Microbatch, ...], Result] = {}
        self.best: tuple[int, tuple[Part, ...]] | None = None

    @cached_property
    def work(self) -> Ints:
        """The least work of each microbatch on each device."""
        return loads_of(self.law.instance(self.batch)).work

    def run(self) -> Assignment:
        """Return the best assignment in time; raise a NoScheduleError if a replica has none."""
        bound = assignment_bound(self.law, self.batch, self.replicas)
        parts = balanced(self.work, self.replicas)
        self.offer(parts)
        reason = ""
        try:
            if _number_of_partitions(len(self.batch), self.replicas) <= _MOST_PARTITIONS:
                bound = max(bound, self.try_all())
            else:
                self.improve(perf_counter() + _QUICK_SHARE * (self.deadline - perf_counter()))
                self.order_replicas()
        except KeyboardInterrupt as stop:  # the best assignment so far is complete
            reason = reason_of(stop)
        assert self.best is not None
        self.offer(self.best[1])  # with all schedules that were found until the signal
        value, parts = self.best
        results = tuple(self.result(part) for part in parts)
        if bound > value:
            raise ContradictionError(f"bound {bound} of all assignments is above the cost {value} of one")
        named = tuple(tuple(self.names[m] for m in part) for part in parts)
        return Assignment(named, results, value, bound, perf_counter() - self.begun, reason)

    def result(self, part: Part) -> Result:
        """Return the best result known of the replica that has these microbatches."""
        key = self.key(part)
        return self.found.get(key) or self.quick[key]

    def key(self, part: Part) -> tuple[Microbatch, ...]:
        """Return what decides the costs of a part: the lengths of its microbatches."""
        return tuple(self.batch[m] for m in part)

    def quick_cost(self, part: Part) -> int:
        """Return the cost of the list schedule of a part."""
        key = self.key(part)
        if key not in self.quick:
            result = self.solver.quick(self.law.instance(key))
            raise_again(result.reason)
            if result.schedule is None:
                tokens = [sum(one) for one in key]
                raise NoScheduleError(f"no schedule of microbatches of {tokens} tokens: {result.reason}")
            self.quick[key] = result
        known = self.found.get(key, self.quick[key]).cost
        assert known is not None
        return known

    def offer(self, parts: tuple[Part, ...]) -> float:
        """Keep an assignment if it is the best so far, and return its cost.

        The cost is infinite if a replica has no schedule. For the first assignment this is an error.
        """
        try:
            for part in parts:
                self.quick_cost(part)
        except NoScheduleError:
            if self.best is None:
                raise
            return inf
        schedules = [self.result(part).schedule for part in parts]
        value = joint_cost([schedule for schedule in schedules if schedule is not None])
        if self.best is None or value < self.best[0]:
            self.best = value, parts
        return value

    def improve(self, deadline: float) -> None:
        """Move and swap microbatches of the slowest replica while that lowers the cost of list schedules."""
        while perf_counter() < deadline and self.best is not None:
            value, parts = self.best
            slowest = max(range(self.replicas), key=lambda r: self.quick_cost(parts[r]))
            for changed in _neighbours(self.work, parts, slowest)[:_TRIED]:
                if perf_counter() > deadline or self.offer(changed) < value:
                    break
            if self.best[0] == value:
                return

    def order_replicas(self) -> None:
        """Order the microbatches of each replica of the best assignment, the slowest first."""
        assert self.best is not None
        _, parts = self.best
        for k, part in enumerate(sorted(parts, key=lambda one: -self.quick_cost(one))):
            left = self.deadline - perf_counter()
            self.solve(part, perf_counter() + left / (self.replicas - k))
        self.offer(parts)

    def solve(self, part: Part, deadline: float) -> Result:
        """Solve the instance of a part, and keep the better one of the results.

        If a signal ended the solve, its exception is raised again, so that no other solve begins.
        """
        key = self.key(part)
        found = self.solver.solve_within(self.law.instance(key), deadline)
        known = self.found.get(key)
        if found.cost is not None and (known is None or found.cost < (known.cost or inf)):
            self.found[key] = found
        raise_again(found.reason)
        return found

    def try_all(self) -> int:
        """Try all assignments, the most promising first, and return a bound that holds for all of them.

        The bound of an assignment is the largest bound of a replica in it. The least one over all assignments
        bounds them all. The bound of a replica is first the work of its busiest device, then that of the
        formulas, and at last that of its solve, each only where the assignment is still promising.
        """
        bounds: dict[tuple[Microbatch, ...], int] = {}
        level: dict[tuple[Microbatch, ...], int] = {}

        def bound_of(parts: tuple[Part, ...]) -> int:
            return max(bounds[self.key(part)] for part in parts)

        def raise_bound(part: Part) -> None:
            key = self.key(part)
            level[key] += 1
            if level[key] == 1:
                found = best_bound(self.law.instance(key)).value
            else:
                end = perf_counter() + (self.deadline - perf_counter()) / 4
                found = self.solve(part, end).bound or 0
            bounds[key] = max(bounds[key], found)

        waiting: list[tuple[int, int, tuple[Part, ...]]] = []
        seen = set()
        for number, parts in enumerate(_partitions(len(self.batch), self.replicas)):
            alike = tuple(sorted(map(self.key, parts)))
            if alike in seen:  # only the names of equal microbatches differ
                continue
            seen.add(alike)
            for part, work in zip(parts, _busiest(self.work, parts), strict=True):
                bounds[self.key(part)], level[self.key(part)] = work, 0
            waiting.append((bound_of(parts), number, parts))
        heapq.heapify(waiting)
        tried: list[int] = []  # bounds of assignments whose replicas have been solved
        while waiting and self.best is not None and waiting[0][0] < self.best[0]:
            bound, number, parts = waiting[0]
            open_parts = [part for part in parts if level[self.key(part)] < _LEVELS]
            if perf_counter() > self.deadline:
                break
            if bound_of(parts) > bound:
                heapq.heapreplace(waiting, (bound_of(parts), number, parts))
            elif not open_parts:
                heapq.heappop(waiting)
                tried.append(bound)
                self.offer(parts)
            else:
                raise_bound(max(open_parts, key=lambda one: (-level[self.key(one)], bounds[self.key(one)])))
        assert self.best is not None
        return min([*tried, *(bound for bound, _, _ in waiting), self.best[0]])


def balanced(work: Ints, replicas: int) -> tuple[Part, ...]:
    """Return an assignment with little work on the busiest device: LPT, then moves and swaps.

    `work` has the ticks of each microbatch on each device, shape (microbatches, devices).
    """
    dealt: list[list[int]] = [[] for _ in range(replicas)]
    loads = np.zeros((replicas, work.shape[1]), np.int64)
    for m in np.argsort(-work.max(1), kind="stable").tolist():
        r = int(np.argmin((loads + work[m]).max(1)))
        dealt[r].append(m)
        loads[r] += work[m]
    found: tuple[Part, ...] = tuple(tuple(sorted(part)) for part in dealt)
    while True:
        before = _busiest(work, found)
        better = _neighbours(work, found, before.index(max(before)))[:1]
        if not better or sorted(_busiest(work, better[0]))[::-1] >= sorted(before)[::-1]:
            return found
        found = better[0]


def _busiest(work: Ints, parts: tuple[Part, ...]) -> list[int]:
    """Return the work of the busiest device of each replica."""
    return [int(work[list(part)].sum(0).max()) for part in parts]


def _neighbours(work: Ints, parts: tuple[Part, ...], slowest: int) -> list[tuple[Part, ...]]:
    """Return the assignments one move or swap away that lighten the slowest replica, the lightest first."""
    own = list(parts[slowest])
    load = work[own].sum(0)
    found: list[tuple[int, int, int | None, int]] = []  # load after it; the other replica; what comes, goes
    for r, part in enumerate(parts):
        if r == slowest:
            continue
        other = work[list(part)].sum(0)
        # what goes from the slowest replica, against what comes in its place: a microbatch, or nothing
        coming = np.concatenate([np.zeros((1, work.shape[1]), np.int64), work[list(part)]])
        change = work[own][:, None] - coming[None]
        after = np.maximum((load - change).max(2), (other + change).max(2))
        if len(own) == 1:
            after[:, 0] = np.iinfo(np.int64).max  # no replica is left without microbatches
        for flat in np.argsort(after, axis=None, kind="stable")[:_TRIED].tolist():
            i, j = divmod(flat, len(part) + 1)
            if after[i, j] < load.max():
                found.append((int(after[i, j]), r, part[j - 1] if j else None, own[i]))
    return [_changed(parts, slowest, *one[1:]) for one in sorted(found, key=lambda one: one[0])]


def _changed(
    parts: tuple[Part, ...], slowest: int, other: int, comes: int | None, goes: int
) -> tuple[Part, ...]:
    new = [set(part) for part in parts]
    new[slowest].remove(goes)
    new[other].add(goes)
    if comes is not None:
        new[other].remove(comes)
        new[slowest].add(comes)
    return tuple(tuple(sorted(part)) for part in new)


def _number_of_partitions(count: int, parts: int) -> int:
    """Return in how many ways things are divided into so many parts, none of them empty (Stirling)."""
    ways = [1] + [0] * parts
    for _ in range(count):
        ways = [0, *(ways[k - 1] + k * ways[k] for k in range(1, parts + 1))]
        if ways[parts] > _MOST_PARTITIONS:
            break
    return ways[parts]


def _partitions(count: int, parts: int) -> Iterator[tuple[Part, ...]]:
    """Yield every way to divide the numbers up to `count` into so many parts, none of them empty."""
    if parts in (1, count):  # the one way, also of numbers too many for a recursion
        return iter([tuple(tuple(range(m, count, parts)) for m in range(parts))])

    def extended(number: int, found: list[list[int]]) -> Iterator[tuple[Part, ...]]:
        if parts - len(found) > count - number:
            return
        if number == count:
            yield tuple(map(tuple, found))
            return
        for part in found:
            part.append(number)
            yield from extended(number + 1, found)
            part.pop()
        if len(found) < parts:
            found.append([number])
            yield from extended(number + 1, found)
            found.pop()

    return extended(0, [])
