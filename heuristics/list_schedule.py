"""Memory-aware list scheduling, which finds an order for every instance that has a schedule.

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

Sources: the rule for safe states is Dijkstra's banker's algorithm (EWD 108, 1964); list scheduling is
Graham's (1966). Filling gaps with W's: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import product
from typing import NamedTuple

import numpy as np

from tightpipe.base.errors import InfeasibleError, NoScheduleError
from tightpipe.kernels.arrays import Ints, Records
from tightpipe.model.graph_arrays import arrays_of, input_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.model.sequences import by_route
from tightpipe.model.simulate import retime
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.heuristic import ListParams

from .list_kernel import Rule, run_list
from .list_state_kernel import COST, DEVICE, STAGE, Fusing, State, new_state

_EVERYTHING = 2.0
"""The `delay` of `Fusing` by which all backwards are fused."""


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
    """The instance as records, in the state before any operation starts.

    - `stages`: the stages of all routes, those of route 0 first, as records `STAGE` of shape (S,).
    - `devices`: the p devices, as records `DEVICE` of shape (p,).
    - `local`: for each device the indices in `stages` of its stages, by ascending number of the stage, shape
      (p, S / p).
    - `together`: for each device the ticks of a pair, by the places of the stages of its F and its BW in
      `local`; empty if no pair has a time of its own.
    - `costs`: what the microbatches of each class cost at each stage, as records `COST`, shape (classes,
      stages).
    - `mb_class`, `microbatch`: class and number of each microbatch of a route, in the sequence in which they
      run, shape (routes, n / routes).
    """

    stages: Records
    devices: Records
    local: Ints
    together: Ints
    costs: Records
    mb_class: Ints
    microbatch: Ints

    def new_state(self, fusing: Fusing) -> State:
        """Return the state of a run before any operation has started. A run leaves the problem unchanged."""
        own = self.stages.copy(), self.devices.copy()
        return new_state(*own, self.local, self.together, self.costs, self.mb_class, self.microbatch, fusing)


class Run(NamedTuple):
    """The order of one run, and its cost in ticks at the times of the run."""

    order: Order
    cost: int


def list_problem(instance: Instance, sequence: Ints | None = None) -> ListProblem:
    """Return an instance as records, in the state before any operation starts.

    `sequence` has the numbers of the microbatches as they run, those of each route in their sequence; None
    stands for the sequence of their numbers.
    """
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


def run_in_slices(
    instance: Instance,
    problem: ListProblem,
    advance: Callable[[State, int], None],
    budget: Budget,
    fusing: Fusing,
) -> Run | None:
    """Run list scheduling, and return the order that it found and the cost; None if time is up before.

    - `instance`: the instance to run.
    - `problem`: the records of the instance, which stay unchanged.
    - `advance`: runs a number of further operations, and changes the state.
    - `budget`: the clock is looked at after a number of operations, the parameter `list.slice`.
    - `fusing`: which backwards are fused.
    """
    state = problem.new_state(fusing)
    left = state.joined.size
    while left > 0:
        if budget.left <= 0:
            return None
        advance(state, min(left, budget.params.list.slice))
        left = state.joined.size - int(state.devices["placed"].sum())
    return run_of(instance, state)


def fusings(instance: Instance, rows: Sequence[Sequence[float]]) -> list[Fusing]:
    """Return when backwards are fused, in one way for each row; only one way if that saves no time."""
    return [Fusing(*row) for row in (rows if instance.fusing_saves else rows[:1])]


def cheapest_of(instance: Instance, family: str, runs: Sequence[Run], budget: Budget) -> Order:
    """Return the order that costs least at its best start times; the first one if time is up.

    Raise a NoScheduleError if there is no run, because time was up before the first one ended.

    - `instance`: the instance that was run.
    - `family`: name of the heuristic, for the error.
    - `runs`: the runs whose orders are compared, the one with the least cost first.
    - `budget`: when its time is up, no further order is looked at.
    """
    if not runs:
        raise NoScheduleError(f"{family} found no schedule within the time limit")
    looked_at = [run.order for k, run in enumerate(runs) if k == 0 or budget.left > 0]
    if len(looked_at) == 1:
        return looked_at[0]
    return min(looked_at, key=lambda order: cost(retime(instance, order)))


def run_of(instance: Instance, state: State) -> Run:
    """Return the order that a run of list scheduling found, and its cost; `state` is that after the run."""
    devices, size = state.devices, state.joined.shape[1]
    offsets = np.arange(len(devices) + 1) * size
    order = Order.from_tokens(state.order.reshape(-1, 3), state.joined.ravel(), offsets)
    if instance.whole:
        return Run(order, int(devices["end"].max()))
    return Run(order, int((devices["end"] - devices["first"]).max()))


def rules_of(params: ListParams) -> tuple[Rule, ...]:
    """Return the priority rules that `list_order` tries."""
    return tuple(Rule(*(value > 0 for value in row[:3]), *row[3:]) for row in params.rules)


def list_order(instance: Instance, budget: Budget = UNLIMITED, sequence: Ints | None = None) -> Order:
    """Return the best order that list scheduling finds; it finds one whenever the instance has a schedule.

    Raise an InfeasibleError if the instance has no schedule. Raise a NoScheduleError if time is up before the
    first order is found.

    - `budget`: when its time is up, no further rule is tried.
    - `sequence`: the microbatches as they run; None for the sequence of their numbers.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    params = budget.params.list
    tries = product(rules_of(params), fusings(instance, params.fusing))
    runs = _runs(instance, list_problem(instance, sequence), tries, budget)
    best = nsmallest(params.retimed, runs, key=lambda run: run.cost)
    return cheapest_of(instance, "list", best, budget)


def order_by(instance: Instance, rule: Rule) -> Order:
    """Return the order that list scheduling finds by one rule; the instance must have a schedule."""
    run = _run(instance, list_problem(instance), rule, UNLIMITED, Fusing(0.0, 1.0))
    assert run is not None, "without a limit of time every run ends"
    return run.order


def adaptive_order(instance: Instance, budget: Budget = UNLIMITED, sequence: Ints | None = None) -> Order:
    """Return 1F1B, or interleaved 1F1B, with as many microbatches in flight as memory admits.

    All backwards are fused. A device runs an F and a backward in turn, or always the backward if one is
    ready, whichever costs less. Raise an InfeasibleError if the instance has no schedule. Raise a
    NoScheduleError if time is up before the first order is found.

    - `budget`: when its time is up, the second of the two is not tried.
    - `sequence`: the microbatches as they run; None for the sequence of their numbers.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    rules = [Rule(alternate, True, True, 0.0, 0.0, 0.0) for alternate in (True, False)]
    tries = product(rules, [Fusing(_EVERYTHING, 1.0)])
    runs = [*_runs(instance, list_problem(instance, sequence), tries, budget)]
    return cheapest_of(instance, "adaptive-1f1b", runs, budget)


def _runs(
    instance: Instance, problem: ListProblem, tries: Iterable[tuple[Rule, Fusing]], budget: Budget
) -> Iterator[Run]:
    for rule, fusing in tries:
        run = _run(instance, problem, rule, budget, fusing)
        if run is None:
            return
        yield run


def _run(instance: Instance, problem: ListProblem, rule: Rule, budget: Budget, fusing: Fusing) -> Run | None:
    return run_in_slices(instance, problem, lambda state, most: run_list(state, rule, most), budget, fusing)
