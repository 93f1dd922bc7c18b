"""Plans, i.e. sequences of F's and B's, are run at the costs of an instance, under many rules.

In a run, W's fill the time in which a device would idle, a backward is fused with its W where nobody waits
for its B, and the last operations are chosen by due dates (`v_blocks_kernel`). There are two kinds of plans.

A building block of V schedules is repeated, squeezed and reordered in time units (`v_blocks_kernel`). Which
block and rule are best is decided in steps, within a fixed amount of work. First all blocks run with few
microbatches under one rule. Then the best blocks run under many rules, first with few microbatches and then
with all.

An order of another heuristic keeps its F's and B's as they are; where its backwards are fused, a run *opens*
those for which somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.search import VBlockParams
from tightpipe.params.solve_params import DEFAULTS

from .family import cheapest
from .list_schedule import DueDateRule, ListProblem, Run, due_dates, list_problem, run_of
from .list_state_kernel import Fusing
from .v_blocks_kernel import WEIGHT, reordered, run_planned

_SEPARATE = 1  # time units of a B that is separate from its W


@dataclass(frozen=True, slots=True)
class Setting:
    """The numbers by which a plan runs at real costs; the others are as in `DueDateRule` and `Fusing`."""

    tail: int = 2  #: number of the last F's of each device that are not planned, nor is what follows them
    pace: float = 1.0
    wait: float = 0.5
    reserve: float = 0.0
    overrun: float = 0.25  #: share of a W, 0 to 1, by which it may delay the next operation
    patience: float = 0.5  #: as in `run_planned`
    weights: bool = False  #: whether a W also runs where it is planned, if the device would not idle
    delay: float = 0.5
    backlog: float = 2.0


Plan = Callable[[int, Setting], Ints]
"""Returns a plan for `run_planned`, given the number of microbatches and the setting."""


def _choices(instance: Instance, params: VBlockParams) -> dict[str, tuple[Any, ...]]:
    """Return the values of each number of a setting that are tried, in the sequence of their choice."""
    fusing = {"delay": params.delays, "backlog": params.backlogs} if instance.fusing_saves else {}
    return {
        **fusing,
        "overrun": params.overruns,
        "weights": (False, True),
        "tail": params.tails,
        "patience": params.patiences,
        "pace": params.paces,
        "reserve": params.reserves,
        "wait": params.waits,
    }


def best_orders(
    instance: Instance, blocks: Sequence[Ints], work: int, params: VBlockParams, limits: Ints | None = None
) -> list[Order]:
    """Return orders of the blocks that are best at the costs of the instance, cheapest first.

    All are within the memory limits, and compared at earliest start times; there are none if no block fits.

    - `blocks`: the blocks, shape (4, p) each. If there are many devices, only the first ones are tried.
    - `work`: number of operations that the runs of each step together may place; a million take about a
      second.
    - `limits`: memory limits of the devices, which hold besides those of the instance; None for no others.
    """
    few = min(instance.microbatches, params.short * instance.devices)
    short = _Runs(replace(instance, microbatches=few), work, params, limits)
    whole = _Runs(instance, work, params, limits)
    plans = [partial(_plan_of_block, block) for block in blocks]
    begun = [tried for plan in plans for tried in short.run(plan, Setting())]
    kept = short.refined(nsmallest(params.kept, begun, key=_cost))
    found = whole.refined([tried for one in kept for tried in whole.run(one.plan, one.setting)])
    return [tried.run.order for tried in sorted(found, key=_cost)]


def cheapest_run(
    instance: Instance,
    orders: Sequence[Order],
    params: VBlockParams = DEFAULTS.v_blocks,
    budget: Budget = UNLIMITED,
) -> Order:
    """Return the cheapest of some orders and of the runs that keep their sequences of F's and B's.

    An order is worth a run only where fused backwards save time. No run begins when the time of the budget is
    up.
    """
    if not instance.fusing_saves:
        return cheapest(instance, orders)
    runs = _Runs(instance, params.order_work * len(orders), params, None, budget)
    plans = [partial(_plan_of_order, instance, order) for order in orders]
    begun = [tried for plan in plans for tried in runs.run(plan, Setting())]
    found = runs.refined(nsmallest(params.kept, begun, key=_cost))
    best = [tried.run.order for tried in nsmallest(params.retimed, found, key=_cost)]
    return cheapest(instance, [*orders, *best])


class _Tried(NamedTuple):
    """A run of a plan under a setting."""

    plan: Plan
    setting: Setting
    run: Run


def _cost(tried: _Tried) -> int:
    return tried.run.cost


class _Runs:
    """The runs of an instance, of which only some are granted."""

    def __init__(
        self,
        instance: Instance,
        work: int,
        params: VBlockParams,
        limits: Ints | None,
        budget: Budget = UNLIMITED,
    ) -> None:
        self._budget = budget
        self._instance, self._problem, self._params = instance, list_problem(instance), params
        if limits is not None:
            own = self._problem.devices["limit"]
            self._problem.devices["limit"] = np.minimum(own, limits)
        self._problem.devices["paired"] = 0  # a pair would start what a plan has for later
        self._left = max(params.least_runs, work // (3 * instance.stages * instance.microbatches))

    def run(self, plan: Plan, setting: Setting) -> Iterator[_Tried]:
        """Yield the run of a plan; nothing if memory does not suffice, or if no more runs are granted."""
        if self._left > 0 and self._budget.left > 0:
            self._left -= 1
            run = _run(self._instance, self._problem, plan, setting)
            if run is not None:
                yield _Tried(plan, setting, run)

    def refined(self, kept: list[_Tried]) -> list[_Tried]:
        """Return each run or, if one is found, a cheaper run of its plan under another setting."""
        for _ in range(self._params.passes):
            for key, values in _choices(self._instance, self._params).items():
                kept = [self._best(tried, key, values) for tried in kept]
        return kept

    def _best(self, tried: _Tried, key: str, values: tuple[Any, ...]) -> _Tried:
        settings = [replace(tried.setting, **{key: value}) for value in values]
        others = [
            run for setting in settings if setting != tried.setting for run in self.run(tried.plan, setting)
        ]
        return min([tried, *others], key=_cost)


def _run(instance: Instance, problem: ListProblem, plan: Plan, setting: Setting) -> Run | None:
    """Return the run of a plan at the costs of the instance; None if memory does not suffice."""
    rule = DueDateRule(setting.pace, setting.wait, setting.overrun, setting.reserve)
    due, n = due_dates(instance, problem, rule), instance.microbatches
    state = problem.new_state(Fusing(setting.delay, setting.backlog))
    return run_of(instance, state) if run_planned(state, plan(n, setting), due, setting.patience) else None


def _plan_of_block(block: Ints, microbatches: int, setting: Setting) -> Ints:
    """Return the plan that a block gives under a setting."""
    table, most = reordered(block, microbatches, _SEPARATE, False), WEIGHT if setting.weights else WEIGHT - 1
    lines = (line[(line >= 0) & (line <= most)] for line in table)
    rows = [kinds_and_stages(line, device, len(table)) for device, line in enumerate(lines)]
    return _plan(rows, setting.tail)


def kinds_and_stages(passes: Ints, device: int, devices: int, backward: OpKind = OpKind.B) -> Ints:
    """Return kind and stage of each pass of a device, shape (passes, 2); the stage of a W means nothing."""
    lower = (passes == 0) | (passes == 3)
    kind = np.where(passes < 2, OpKind.F, np.where(passes < WEIGHT, backward, OpKind.W))
    return np.stack([kind, np.where(lower, device, 2 * devices - 1 - device)], axis=1)


def _plan_of_order(instance: Instance, order: Order, _: int, setting: Setting) -> Ints:
    """Return the plan that has the F's and B's of an order and, if the setting says so, its W's."""
    routes = np.array([instance.route(m) for m in range(instance.microbatches)])
    rows = []
    for device in range(order.devices):
        kind, stage, microbatch = order.operations[order.rows(device)].T
        line = np.stack([np.where(kind == OpKind.BW, OpKind.B, kind), stage], axis=1)
        line[:, 1] += routes[microbatch] * instance.stages
        rows.append(line if setting.weights else line[line[:, 0] != OpKind.W])
    return _plan(rows, setting.tail)


def _plan(devices: Sequence[Ints], tail: int) -> Ints:
    """Return kinds and stages of each device up to the tail as one array, as `run_planned` takes it."""
    planned = [_planned(rows, tail) for rows in devices]
    plan = np.full((len(devices), max(map(len, planned)), 2), -1, np.int64)
    for device, rows in enumerate(planned):
        plan[device, : len(rows)] = rows
    return plan


def _planned(rows: Ints, tail: int) -> Ints:
    """Return the rows up to the last F, or before the first of the last `tail` F's."""
    forwards = np.flatnonzero(rows[:, 0] == OpKind.F)
    if tail == 0:
        return rows[: forwards[-1] + 1]
    return rows[: forwards[-tail]] if tail < len(forwards) else rows[:0]
