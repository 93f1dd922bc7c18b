"""What limits a plan, and what would help: more memory, more chunks, faster links, one layer elsewhere.

A short search looks for a plan of each changed problem. So each answer has two numbers: a lower bound on the
cost of every plan of the changed problem, and the cost of the plan that was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any

from tightpipe.solver.bounds.formulas import best_bound

from ..base.errors import InputError
from ..base.interruption import raise_again
from ..explain import DeviceTime, Explanation, Phase, Reason
from ..model.instance import Instance
from ..model.metrics import cost
from ..model.placement import Placement
from ..model.result import Progress
from ..model.schedule import Schedule
from ..params.budget import Allowance, Budget
from ..registry.solve import solve
from ..registry.starts import warm_starts
from .candidate import Candidate, gathers_again, instance_of
from .cluster import Cluster, Network
from .gathers import step_ticks, with_gathers
from .planner import plan as find_plan
from .problem import SOLVER, PlanningProblem, check_problem
from .result import Plan, adopted
from .runtimes import runnable
from .search import layers_moved


@dataclass(frozen=True, slots=True)
class Limit:
    """One use of the time of a training step, or of memory, on the device where it is largest."""

    name: str  #: name of the use, e.g. ``computation``
    device: int  #: the device
    amount: int  #: ticks or bytes that the use takes
    of: int  #: the ticks of a whole training step, or the size of the device's memory in bytes

    @property
    def share(self) -> float:
        """`amount` as a share of `of`."""
        return self.amount / self.of

    def to_dict(self) -> dict[str, Any]:
        """Return the limit as plain data for JSON."""
        return {**asdict(self), "share": self.share}


def limits(plan: Plan, explained: Explanation) -> list[Limit]:
    """Return the limits of a plan, whose schedule is `explained`, the largest share first.

    Memory is among them only if the cluster has a memory limit. The same idle time may count for two limits,
    e.g. if a device waits for memory in its warm-up.
    """
    by_share = attrgetter("share")
    found = [
        max((Limit(name, d.device, ticks(d), plan.cost or 1) for d in explained.devices), key=by_share)
        for name, ticks in _TIMES.items()
    ]
    used = [
        Limit("memory", device, memory.peak, memory.limit)
        for device, memory in enumerate(plan.memory or ())
        if memory.limit
    ]
    return sorted([*found, *sorted(used, key=by_share)[-1:]], key=by_share, reverse=True)


_TIMES: dict[str, Callable[[DeviceTime], int]] = {
    "computation": lambda device: device.busy,
    "idle in warm-up and cool-down": lambda device: (
        device.by_phase[Phase.WARM_UP] + device.by_phase[Phase.COOL_DOWN]
    ),
    "idle for messages": lambda device: (
        device.by_reason[Reason.COMMUNICATION] + device.by_reason[Reason.LINK]
    ),
    "idle as memory is full": lambda device: device.by_reason[Reason.MEMORY],
}
"""The uses of a device's time, each with a function that returns the ticks of the use."""

_MORE_MEMORY = 10**9  # bytes


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer for one changed problem."""

    change: str  #: what is changed, in words
    #: a lower bound, in ticks, on the cost of every plan of the changed problem; None if nothing is proven
    bound: int | None
    cost: int | None  #: the cost in ticks of the plan that was found; None if no plan was found
    #: ticks by which the cost is below that of the unchanged plan, negative if it is above; None if no plan
    #: was found
    saved: int | None
    reason: str = ""  #: why no plan was found, or why the change is not possible; empty if a plan was found

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data for JSON."""
        return asdict(self)


_Answer = Callable[[Plan, Allowance, Progress], WhatIf]
_Bounded = tuple[int, int, Candidate, Instance]  # first a bound in ticks, and a number that breaks ties


def what_ifs(now: Plan, allowance: Allowance, begin: Callable[[str], Progress]) -> Iterator[WhatIf]:
    """Yield an answer for the unchanged plan, and then for each change, as soon as it is found.

    Each search gets the `allowance`. `begin` is called with each change in words, and returns a function that
    the search calls with each new cost or bound.
    """
    yield WhatIf("as it is", now.bound, now.cost, 0)
    for change, answer in _ANSWERS.items():
        try:
            yield replace(answer(now, allowance, begin(change)), change=change)
        except InputError as error:
            yield WhatIf(change, None, None, None, error.rule)


def _planned(now: Plan, changed: PlanningProblem, allowance: Allowance, progress: Progress) -> WhatIf:
    """Return what a short search finds for a changed problem, or the plan `now` if that is cheaper there.

    Raise an InputError if the changed problem is none, e.g. as the runtime does not run its placement.
    """
    check_problem(changed)
    found = find_plan(changed, progress=progress, **allowance.options)
    raise_again(found.reason)
    found = adopted(found, now)
    return _told(now, found.bound, found.cost, found.reason)


def _told(now: Plan, bound: int | None, found: int | None, reason: str) -> WhatIf:
    saved = None if found is None or now.cost is None else now.cost - found
    return WhatIf("", bound, found, saved, reason if found is None else "")


def _more_memory(now: Plan, allowance: Allowance, progress: Progress) -> WhatIf:
    if now.problem.cluster.memory is None:
        raise InputError("the cluster has no memory limit")
    return _planned(now, now.problem.with_more_memory(_MORE_MEMORY), allowance, progress)


def _more_chunks(now: Plan, allowance: Allowance, progress: Progress) -> WhatIf:
    """Return the answer for the next larger number of chunks that the placement allows.

    The placement stays the same, but `loop` takes the place of `linear`, and `wave` that of `v`.
    """
    assert now.candidate is not None
    placement = now.candidate.placement
    name = {"linear": "loop", "v": "wave"}.get(placement.name, placement.name)
    chunks = _next_chunks(name, placement)
    space = replace(now.problem.space, placements=(name,), chunks=(chunks,))
    cluster = replace(now.problem.cluster, devices=(placement.devices,))
    return _planned(now, replace(now.problem, space=space, cluster=cluster), allowance, progress)


def _next_chunks(name: str, placement: Placement) -> int:
    first = placement.stages_per_device + 1
    for chunks in (first, first + 1):
        with suppress(InputError):  # a wave has an even number of chunks
            Placement(name, placement.devices, chunks)
            return chunks
    raise InputError(f"placement {name} takes no more chunks than {placement.stages_per_device}")


def _half_comm(now: Plan, allowance: Allowance, progress: Progress) -> WhatIf:
    cluster = now.problem.cluster
    assert now.instance is not None
    if not any(map(any, now.instance.costs.comm)):  # type: ignore[arg-type]  # expanded at birth
        raise InputError("messages take no time")
    return _planned(now, replace(now.problem, cluster=_with_half_comm(cluster)), allowance, progress)


def _with_half_comm(cluster: Cluster) -> Cluster:
    """Return the cluster with half the time for each message; times in ticks are rounded down."""
    comm = cluster.comm
    if isinstance(comm, Network):
        waits = {key: getattr(comm, key) / 2 for key in ("latency", "node_latency")}
        speeds = {key: getattr(comm, key) * 2 for key in ("bandwidth", "node_bandwidth")}
        return replace(cluster, comm=replace(comm, **waits, **speeds))
    half = comm // 2 if isinstance(comm, int) else tuple(tuple(ticks // 2 for ticks in row) for row in comm)
    return replace(cluster, comm=half)


def _layer_moved(now: Plan, allowance: Allowance, _: Progress) -> WhatIf:
    """Return the answer for partitions in which one layer is moved to another stage.

    Heuristics schedule these partitions. Then the method `best` works on the one with the cheapest schedule,
    if the problem has it among its methods.
    """
    budget = allowance.begin()
    moved = _bounded(now, budget)
    if not moved:
        return _told(now, None, None, "no other partition with one layer moved fits the memory")
    bound = moved[0][0]
    start = _best_start(now.problem, moved, budget.part(budget.params.starts.share))
    if start is None:
        return _told(now, bound, None, "no schedule was found in time")
    candidate, schedule = start
    if SOLVER in _methods(now.problem, candidate):
        left = replace(allowance, time_limit=None if budget.endless else budget.left)
        result = solve(schedule.instance, warm_start=schedule, **left.options)
        raise_again(result.reason)
        schedule = result.schedule or schedule
    timed = with_gathers(now.problem, candidate, schedule)
    return _told(now, bound, step_ticks(now.problem, candidate, timed), "")


def _methods(problem: PlanningProblem, candidate: Candidate) -> tuple[str, ...]:
    return problem.methods_for(any(candidate.recomputed), gathers_again(problem, candidate))


def _best_start(
    problem: PlanningProblem, moved: list[_Bounded], budget: Budget
) -> tuple[Candidate, Schedule] | None:
    """Return the cheapest schedule of a heuristic over all candidates, or None if none was found in time.

    `moved` has the instances in ascending order of their bounds. So the loop ends at the first instance whose
    bound is not below the best cost so far, because no later one can be cheaper.
    """
    best: tuple[Candidate, Schedule] | None = None
    for bound, _, candidate, instance in moved:
        if budget.left <= 0 or (best is not None and bound >= cost(best[1])):
            break
        if all(candidate not in ways for ways in runnable(problem, candidate)):
            continue
        methods = _methods(problem, candidate)
        starts = (made for name, made in warm_starts(instance, budget.unlimited()) if name in methods)
        schedule = next(starts, None)
        if schedule is not None and (best is None or cost(schedule) < cost(best[1])):
            best = candidate, schedule
    return best


def _bounded(now: Plan, budget: Budget) -> list[_Bounded]:
    """Return each partition that has one layer moved and fits the memory, the least bound first.

    An InputError is raised if time is up before all these partitions have been looked at.
    """
    assert now.candidate is not None
    found = []
    for number, candidate in enumerate(layers_moved(now.candidate, empty=now.problem.space.empty)):
        if budget.left <= 0:
            raise InputError("there are too many ways to move a layer for the time limit")
        with suppress(InputError):  # the candidate does not fit, or is left without an operation
            instance = instance_of(now.problem, candidate)
            if instance.infeasibility() is None:
                found.append((best_bound(instance).value, number, candidate, instance))
    return sorted(found, key=lambda entry: entry[:2])


_ANSWERS: dict[str, _Answer] = {
    "1 GB more memory per device": _more_memory,
    "more chunks": _more_chunks,
    "half the communication": _half_comm,
    "one layer moved": _layer_moved,
}

CHANGES = tuple(_ANSWERS)
"""The changes in words, in the sequence in which they are looked at."""
