"""Memory-aware list scheduling, which finds an order for every instance that has a schedule.

Time is simulated event by event. Whenever a device is free, a priority rule chooses which of its ready
operations it starts: a B, an F, or a W that fills a gap or frees memory. A B takes its W with it where that
saves time and nobody waits for the B. Several rules are tried, and the
order of least cost is kept. The equal operations of a stage run in a queue, first in, first out.

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

from collections.abc import Iterator
from heapq import nsmallest
from itertools import product

from tightpipe.core.budget import UNLIMITED, Budget
from tightpipe.core.errors import InfeasibleError
from tightpipe.core.instance import Instance
from tightpipe.core.params.heuristic import ListParams
from tightpipe.core.schedule import Order

from .list_kernel import Rule, run_list
from .list_problem import ListProblem, Run, cheapest_of, fusings, list_problem, run_in_slices
from .list_state_kernel import Fusing


def rules_of(params: ListParams) -> tuple[Rule, ...]:
    """Return the priority rules that `list_order` tries."""
    return tuple(Rule(*(value > 0 for value in row[:3]), *row[3:]) for row in params.rules)


def list_order(instance: Instance, budget: Budget = UNLIMITED) -> Order:
    """Return the best order that list scheduling finds; it finds one whenever the instance has a schedule.

    Parameters
    ----------
    instance
        The problem.
    budget
        When its time is up, no further rule is tried.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule.
    NoScheduleError
        If time is up before the first order is found.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    best = nsmallest(budget.params.list.retimed, _runs(instance, budget), key=lambda run: run.cost)
    return cheapest_of(instance, "list", best, budget)


def order_by(instance: Instance, rule: Rule) -> Order:
    """Return the order that list scheduling finds by one rule; the instance must have a schedule."""
    run = _run(instance, list_problem(instance), rule, UNLIMITED, Fusing(0.0, 1.0))
    assert run is not None, "without a limit of time every run ends"
    return run.order


def _runs(instance: Instance, budget: Budget) -> Iterator[Run]:
    problem = list_problem(instance)
    ways = fusings(instance, budget.params.list.fusing)
    for rule, fusing in product(rules_of(budget.params.list), ways):
        run = _run(instance, problem, rule, budget, fusing)
        if run is None:
            return
        yield run


def _run(instance: Instance, problem: ListProblem, rule: Rule, budget: Budget, fusing: Fusing) -> Run | None:
    return run_in_slices(instance, problem, lambda state, most: run_list(state, rule, most), budget, fusing)
