"""Memory-aware list scheduling by priority or due dates, which finds an order wherever there is a schedule.

Time is simulated event by event. Whenever a device is free, a priority rule chooses which of its ready
operations it starts: a B, an F, or a W that fills a gap or frees memory. A B takes its W with it where that
saves time and nobody waits for the B. Several rules are tried, and the order of least cost is kept. The
operations of a kind at a stage run in a given sequence of the microbatches, which matters where these differ.

Why there is no deadlock: All microbatches are ranked in one sequence, which all devices share. On a device,
let h[j] be the memory that microbatch j holds there until its B's end, and r[j] the memory that its remaining
F's there will take. The device is *safe* if its unfinished microbatches can end one by one, the oldest first:
the limit minus the sum of all h covers r of the oldest one; with h of the oldest added, it covers r of the
next; and so on. The memory of a pending W, whose B has run, does not count, because the W can run at once. An
empty device is safe exactly when its limit is at least `Instance.smallest_limit`.

An F starts only if the device is safe afterwards (the banker's rule). An F of the oldest microbatch keeps the
device safe because it adds as much to h as it takes from r. A B or W keeps the device safe because it only
frees memory. Now let j be the oldest microbatch that is unfinished on any device. On each device where j is
unfinished, j is the oldest one and first in its queues. So the next operation of j may start as soon as its
input has arrived, if need be after the pending W's of the device. Hence some operation can always start until
all have run. Rules that let a device wait do not change this, because a device waits only for an arrival
whose time is already known.

**By due dates.** In a schedule without idle time, the device with the largest work would be busy from its
first start to its last end. One can count back from that end: after an operation, all later operations of its
microbatch still have to run, one after the other, each with its communication and a wait for its device; and
the later microbatches of its stage have to follow at a certain pace. So every operation has a *due date*: if
it starts later, idle time is likely. The ready F or B that is due first runs first. And a W may run although
it takes longer than the time until the next arrival, if whatever arrives meanwhile can still start when it is
due; by priority a device either runs out of W's in the cool-down, or idles a little before many operations.
Where memory is plentiful, due dates find schedules nearly without a bubble.

Sources: the rule for safe states is Dijkstra's banker's algorithm (EWD 108, 1964); list scheduling is
Graham's (1966). Filling gaps with W's: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241.
Sequencing by due dates: J. R. Jackson, "Scheduling a production line to minimize maximum tardiness", Research
Report 43, Management Science Research Project, UCLA, 1955.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import product
from typing import NamedTuple

import numpy as np

from tightpipe.base.errors import NoScheduleError
from tightpipe.kernels.arrays import Ints, Records
from tightpipe.model.graph_arrays import arrays_of, input_of
from tightpipe.model.instance import Instance
from tightpipe.model.microbatches import by_route
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.search import DueDateParams, ListParams

from .family import cheapest, refuse_infeasible
from .list_kernel import DueDates, Rule, run_by_due_dates, run_list
from .list_state_kernel import COST, DEVICE, STAGE, Fusing, State, new_state

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)
_EVERYTHING = 2.0
"""The `delay` of `Fusing` by which all backwards are fused."""
Advance = Callable[[State, int], None]
"""Runs so many further operations of a run by some rule, and changes its state."""


class StageCosts(NamedTuple):
    """The costs of F, B and W at each stage for one class of microbatches, with S stages and p devices."""

    duration: Ints  # (3, S) ticks
    fused: Ints  # (S,) ticks of a B with its W
    delta: Ints  # (3, S) memory that each operation adds
    lag: Ints  # (3, S) ticks from the end of what the operation waits for until its input has arrived
    device: Ints  # (S,) device of each stage
    limit: Ints  # (p,) memory limit of each device, `NO_LIMIT` where there is none


def stage_costs(instance: Instance, mb_class: int = 0) -> StageCosts:
    """Return the costs of the stages of an instance for a class of microbatches."""
    graph = arrays_of(instance)
    nodes = graph.nodes[graph.node[:, mb_class]]
    waits, edges = input_of(graph, nodes)
    return StageCosts(
        duration=nodes["duration"].copy(),
        fused=nodes["fused"][OpKind.B].copy(),
        delta=nodes["delta"].copy(),
        lag=np.where(waits, edges["lag"], 0),
        device=nodes["device"][0].copy(),
        limit=graph.devices["limit"].copy(),
    )


class ListProblem(NamedTuple):
    """The instance as records, in the state before any operation starts; there are S stages of all routes."""

    stages: Records  # (S,) of `STAGE`, those of route 0 first
    devices: Records  # (p,) of `DEVICE`
    local: Ints  # (p, S / p) indices in `stages` of the stages of each device, ascending by their number
    together: Ints  # (p, S / p, S / p) ticks of a pair by places in `local`; empty if none has its own
    costs: Records  # (classes, stages) of `COST`
    mb_class: Ints  # (routes, n / routes) class of each microbatch of a route, in the sequence as they run
    microbatch: Ints  # (routes, n / routes) its number

    def new_state(self, fusing: Fusing) -> State:
        """Return the state of a run before any operation has started. A run leaves the problem unchanged."""
        own = self.stages.copy(), self.devices.copy()
        return new_state(*own, self.local, self.together, self.costs, self.mb_class, self.microbatch, fusing)


class Run(NamedTuple):
    """The order of one run, and its cost in ticks at the times of the run."""

    order: Order
    cost: int


def list_problem(instance: Instance, sequence: Ints | None = None) -> ListProblem:
    """Return an instance as records before any operation starts; `sequence` is as in `list_order`."""
    p, n, routes = instance.devices, instance.microbatches, len(instance.placement.routes)
    stages, devices = np.zeros(routes * instance.stages, STAGE), np.zeros(p, DEVICE)
    of_class = [stage_costs(instance, c) for c in range(len(instance.class_counts))]
    costs = np.zeros((len(of_class), instance.stages), COST)
    for row, one in zip(costs, of_class, strict=True):
        row["duration"], row["delta"], row["fused"] = one.duration.T, one.delta.T, one.fused
        row["apart"] = one.duration[OpKind.B] + one.duration[OpKind.W]
    microbatch = by_route(instance, np.arange(n) if sequence is None else sequence)
    mb_class = arrays_of(instance).mb_class[microbatch]
    for route, mine in enumerate(np.split(stages, routes)):
        first = of_class[mb_class[route, 0]]
        mine["home"], mine["number"], mine["route"] = first.device, np.arange(instance.stages), route
        mine["lag"] = first.lag.T
        devices["limit"] = first.limit
    devices["paired"] = arrays_of(instance).devices["paired"]
    by_home = np.lexsort((stages["route"], stages["number"], stages["home"]))
    local = by_home.reshape(p, -1)
    stages["place"][by_home] = np.arange(len(stages)) % local.shape[1]
    together = _together(instance, stages["number"][local].tolist())
    return ListProblem(stages, devices, local, together, costs, mb_class, microbatch)


def _together(instance: Instance, held: list[list[int]]) -> Ints:
    """Return the ticks of the pairs of each device, which has the stages `held`; empty if there are none."""
    if not instance.has_pairs:
        return np.zeros((len(held), 0, 0), np.int64)
    return np.array(
        [[[instance.together(d, f, b) for b in on] for f in on] for d, on in enumerate(held)], np.int64
    )


def runs_of(
    instance: Instance,
    problem: ListProblem,
    ways: Iterable[tuple[Advance, Fusing]],
    budget: Budget = UNLIMITED,
) -> Iterator[Run]:
    """Yield one run for each way to choose operations and to fuse backwards, until the time is up."""
    for advance, fusing in ways:
        state = problem.new_state(fusing)
        left = state.joined.size
        while left > 0:
            if budget.left <= 0:
                return
            advance(state, min(left, budget.params.list.slice))
            left = state.joined.size - int(state.devices["placed"].sum())
        yield run_of(instance, state)


def fusings(instance: Instance, rows: Sequence[Sequence[float]]) -> list[Fusing]:
    """Return when backwards are fused, in one way for each row; only one way if that saves no time."""
    return [Fusing(*row) for row in (rows if instance.fusing_saves else rows[:1])]


def cheapest_of(instance: Instance, family: str, runs: Sequence[Run], budget: Budget) -> Order:
    """Return the order that costs least at its best start times; the first one if time is up.

    Raise a NoScheduleError in the name of `family` if time was up before the first run ended.
    """
    if not runs:
        raise NoScheduleError(f"{family} found no schedule within the time limit")
    return cheapest(instance, [run.order for k, run in enumerate(runs) if k == 0 or budget.left > 0])


def run_of(instance: Instance, state: State) -> Run:
    """Return the order that a run of list scheduling found, and its cost; `state` is that after the run."""
    devices, size = state.devices, state.joined.shape[1]
    offsets = np.arange(len(devices) + 1) * size
    order = Order.from_tokens(state.order.reshape(-1, 3), state.joined.ravel(), offsets)
    if instance.whole:
        return Run(order, int(devices["end"].max()))
    return Run(order, int((devices["end"] - devices["first"]).max()))


def priority_rules(params: ListParams) -> list[Rule]:
    """Return the rules that `list_order` tries."""
    return [Rule(*(value > 0 for value in row[:3]), *row[3:]) for row in params.rules]


def by_priority(rule: Rule) -> Advance:
    """Return what chooses operations by a priority rule."""
    return lambda state, most: run_list(state, rule, most)


def list_order(instance: Instance, budget: Budget = UNLIMITED, sequence: Ints | None = None) -> Order:
    """Return the best order that priority rules find; they find one whenever the instance has a schedule.

    Raise an InfeasibleError if the instance has no schedule. Raise a NoScheduleError if time is up before the
    first order is found. When it is up later, no further rule is tried. `sequence` has the microbatches as
    they run; None stands for the sequence of their numbers.
    """
    refuse_infeasible(instance)
    params = budget.params.list
    ways = product(map(by_priority, priority_rules(params)), fusings(instance, params.fusing))
    runs = runs_of(instance, list_problem(instance, sequence), ways, budget)
    best = nsmallest(params.retimed, runs, key=lambda run: run.cost)
    return cheapest_of(instance, "list", best, budget)


def adaptive_order(instance: Instance, budget: Budget = UNLIMITED, sequence: Ints | None = None) -> Order:
    """Return 1F1B, or interleaved 1F1B, with as many microbatches in flight as memory admits.

    All backwards are fused. A device runs an F and a backward in turn, or always the backward if one is
    ready, whichever costs less. The parameters and the errors are those of `list_order`.
    """
    refuse_infeasible(instance)
    rules = [Rule(alternate, True, True, 0.0, 0.0, 0.0) for alternate in (True, False)]
    ways = product(map(by_priority, rules), [Fusing(_EVERYTHING, 1.0)])
    runs = [*runs_of(instance, list_problem(instance, sequence), ways, budget)]
    return cheapest_of(instance, "adaptive-1f1b", runs, budget)


class DueDateRule(NamedTuple):
    """One rule: the numbers from which due dates follow, and two that decide which W's and F's may start."""

    pace: float  # between due dates of consecutive microbatches, in mean works F + B + W of a stage
    wait: float  # what each following operation waits for its device, in mean durations of a W
    overrun: float  # share of a W, 0 to 1, by which it may always delay the next arrival
    reserve: float  # share of the promised memory, 0 to 1, that an F must leave free


def due_date_rules(params: DueDateParams) -> list[DueDateRule]:
    """Return the rules that `due_date_order` tries."""
    return [DueDateRule(*row) for row in params.rules]


def by_due_dates(due: DueDates) -> Advance:
    """Return what chooses operations by due dates."""
    return lambda state, most: run_by_due_dates(state, due, most)


def due_date_order(instance: Instance, budget: Budget = UNLIMITED, sequence: Ints | None = None) -> Order:
    """Return the best order by due dates under any rule; parameters and errors are those of `list_order`."""
    refuse_infeasible(instance)
    problem, params = list_problem(instance, sequence), budget.params.due_date
    dates = (due_dates(instance, problem, rule) for rule in due_date_rules(params))
    ways = product(map(by_due_dates, dates), fusings(instance, params.fusing))
    best = nsmallest(params.retimed, runs_of(instance, problem, ways, budget), key=lambda run: run.cost)
    return cheapest_of(instance, "due-date", best, budget)


def due_dates(instance: Instance, problem: ListProblem, rule: DueDateRule) -> DueDates:
    """Return the due dates that a rule gives, in ticks.

    The last microbatch of each route should end at the tick that equals the largest work of a device. An
    operation that others follow is due earlier by what these take at a device without idle time.
    """
    stages, duration = problem.stages, problem.costs["duration"]  # (classes, stages of a route, kinds)
    weights = duration[..., _W].mean(axis=1)[problem.mb_class]  # of each microbatch
    wait = rule.wait * weights.mean()
    target = max(instance.work(device) for device in range(instance.devices))
    held = stages["number"][problem.local]
    pace = (rule.pace * duration.sum(axis=2)[:, held].mean(axis=2).max(axis=1)).astype(np.int64)
    closing = duration[..., [_B, _W]].sum(axis=2)[:, held].mean(axis=2).max(axis=1).astype(np.int64)
    routes = np.split(stages, len(instance.placement.routes))
    left = np.array(
        [np.concatenate([_left(one, route, wait) for route in routes], axis=1) for one in duration]
    )
    last, of = np.int64(target) - left, problem.mb_class
    return DueDates(last, _later(pace[of]), _later(closing[of]), rule.overrun, rule.reserve)


def _later(ticks: Ints) -> Ints:
    """Return for each entry of a row the sum of those after it."""
    return np.asarray(ticks[:, ::-1].cumsum(axis=1)[:, ::-1] - ticks)


def _left(duration: Ints, route: Records, wait: float) -> Ints:
    """Return the ticks from the start of the F, and of the B, at each stage to the end of its microbatch.

    The result has the shape (2, stages), and `duration`, of F, B and W at each stage of a `route`, the shape
    (stages, 3). Each F and B but the first one waits `wait` ticks for its device.
    """
    chain = np.concatenate([duration[:, _F], duration[::-1, _B]])
    arriving = np.concatenate([route["lag"][:, _F], route["lag"][::-1, _B]]) + wait
    steps = chain + np.append(arriving[1:], duration[0, _W])
    left = steps[::-1].cumsum()[::-1].astype(np.int64)
    return np.stack([left[: len(route)], left[len(route) :][::-1]])
