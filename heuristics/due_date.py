"""List scheduling by due dates: each operation should start early enough for all that must follow it.

In a schedule without idle time, the device with the largest work would be busy from its first start to its
last end. One can count back from that end: after an operation, all later operations of its microbatch still
have to run, one after the other, each with its communication; and the later microbatches of its stage have
to follow at a certain pace. So every operation has a *due date*: if it starts later, idle time is likely.

Due dates answer two questions. Which ready operation comes first? The one that is due first, whether it is
an F or a B. And if none is ready until the next arrival, may the device fill the time with a W that takes
longer than that? It may if whatever arrives meanwhile can still start when it is due. The rules of
`list_schedule` know no due dates. Some of them always start such a W, and run out of W's in the cool-down;
others start it only if it does not take much longer, and idle a little before many operations. Where memory
is plentiful, due dates find schedules nearly without a bubble.

In practice an operation does not start at once when its inputs arrive, because its device is in the middle
of another operation. So the count back adds the same waiting time for each following operation.

Memory is watched as in `list_schedule`, so that this method does not deadlock either.

References
----------
Sequencing by due dates: J. R. Jackson, "Scheduling a production line to minimize maximum tardiness", Research
Report 43, Management Science Research Project, UCLA, 1955.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import product
from typing import NamedTuple

import numpy as np

from tightpipe.base.errors import InfeasibleError
from tightpipe.kernels.arrays import Ints, Records
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.heuristic import DueDateParams

from .list_kernel import DueDates, run_by_due_dates
from .list_schedule import ListProblem, Run, cheapest_of, fusings, list_problem, run_in_slices
from .list_state_kernel import Fusing, State

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)


class DueDateRule(NamedTuple):
    """One rule: the numbers from which due dates follow, and two that decide which W's and F's may start."""

    pace: float  # between due dates of consecutive microbatches, in mean works F + B + W of a stage
    wait: float  # what each following operation waits for its device, in mean durations of a W
    overrun: float  # share of a W, 0 to 1, by which it may always delay the next arrival
    reserve: float  # share of the promised memory, 0 to 1, that an F must leave free


def rules_of(params: DueDateParams) -> tuple[DueDateRule, ...]:
    """Return the rules that `due_date_order` tries."""
    return tuple(DueDateRule(*row) for row in params.rules)


def due_date_order(instance: Instance, budget: Budget = UNLIMITED, sequence: Ints | None = None) -> Order:
    """Return the best order that list scheduling by due dates finds under any of its rules.

    Every instance that has a schedule gets an order. Raise an InfeasibleError if the instance has no
    schedule. Raise a NoScheduleError if time is up before the first order is found.

    - `budget`: when its time is up, no further rule is tried.
    - `sequence`: the microbatches as they run; None for the sequence of their numbers.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    runs = _runs(instance, list_problem(instance, sequence), budget)
    best = nsmallest(budget.params.due_date.retimed, runs, key=lambda run: run.cost)
    return cheapest_of(instance, "due-date", best, budget)


def order_by(instance: Instance, rule: DueDateRule) -> Order:
    """Return the order that due dates give by one rule; the instance must have a schedule."""
    problem = list_problem(instance)
    return run_with(instance, problem, due_dates(instance, problem, rule)).order


def _runs(instance: Instance, problem: ListProblem, budget: Budget) -> Iterator[Run]:
    ways = fusings(instance, budget.params.due_date.fusing)
    for rule, fusing in product(rules_of(budget.params.due_date), ways):
        run = _run(instance, problem, due_dates(instance, problem, rule), budget, fusing)
        if run is None:
            return
        yield run


def _run(
    instance: Instance, problem: ListProblem, due: DueDates, budget: Budget, fusing: Fusing
) -> Run | None:
    def advance(state: State, most: int) -> None:
        run_by_due_dates(state, due, most)

    return run_in_slices(instance, problem, advance, budget, fusing)


def run_with(instance: Instance, problem: ListProblem, due: DueDates) -> Run:
    """Return the order that given due dates lead to, and its cost in ticks.

    - `instance`: the instance, which must have a schedule.
    - `problem`: the records of the instance, which stay unchanged.
    - `due`: the due dates.
    """
    run = _run(instance, problem, due, UNLIMITED, Fusing(0.0, 1.0))
    assert run is not None, "without a limit of time every run ends"
    return run


def due_dates(instance: Instance, problem: ListProblem, rule: DueDateRule) -> DueDates:
    """Return the due dates that a rule gives, in ticks.

    The dates are such that the last microbatch of each route should end at the tick that equals the largest
    work of a device. An operation that others follow is due earlier by what these take at a device that
    runs without idle time. `problem` has the records of the instance.
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
    """Return the ticks from the start of an F and of a B at each stage to the end of its microbatch.

    The result has shape (2, stages): for the F and for the B at each stage.

    - `duration`: ticks of F, B and W at each stage, shape (stages, 3).
    - `route`: the stages of a route, shape (stages,).
    - `wait`: ticks that each F and B but the first one waits for its device.
    """
    chain = np.concatenate([duration[:, _F], duration[::-1, _B]])
    arriving = np.concatenate([route["lag"][:, _F], route["lag"][::-1, _B]]) + wait
    steps = chain + np.append(arriving[1:], duration[0, _W])
    left = steps[::-1].cumsum()[::-1].astype(np.int64)
    return np.stack([left[: len(route)], left[len(route) :][::-1]])
