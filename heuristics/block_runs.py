"""Building blocks of V schedules are run at the costs of an instance, under many rules.

A block is repeated, squeezed and reordered in time units (`v_reorder_kernel`). That gives each device a
sequence of F's and B's, which is run at the costs of the instance: W's fill the time in which the device
would idle, and the last operations are chosen by due dates (`planned_kernel`).

Which block and rule are best is decided in steps, within a fixed amount of work. First all blocks run with
few microbatches under one rule. Then the best blocks run under many rules, first with few microbatches and
then with all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Any, NamedTuple

import numpy as np

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.params.heuristic import VBlockParams
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints

from .due_date import DueDateRule, due_dates
from .list_problem import ListProblem, Run, list_problem, run_of
from .list_state_kernel import new_state
from .planned_kernel import run_planned
from .v_reorder_kernel import WEIGHT, reordered

_SEPARATE = 1  # time units of a B that is separate from its W


@dataclass(frozen=True, slots=True)
class Setting:
    """The numbers by which a block runs at real costs.

    Parameters
    ----------
    tail
        Number of the last F's of each device that are not planned, nor is what follows them.
    pace, wait, reserve
        As in `DueDateRule`, for what is not planned.
    overrun
        Share of a W, 0 to 1, by which it may delay the next operation.
    patience
        As in `run_planned`.
    weights
        Whether a W also runs where it is planned, even if the device would not idle then.
    """

    tail: int = 2
    pace: float = 1.0
    wait: float = 0.5
    reserve: float = 0.0
    overrun: float = 0.25
    patience: float = 0.5
    weights: bool = False


def _choices(params: VBlockParams) -> dict[str, tuple[Any, ...]]:
    """Return the values of each number of a setting that are tried, in the sequence of their choice."""
    return {
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

    Parameters
    ----------
    instance
        The problem, in the placement v.
    blocks
        The blocks, shape (4, p) each. If there are many devices, only the first ones are tried.
    work
        Number of operations that the runs of each step together may place; a million take about a second.
    params
        How many runs there are, and which settings are tried.
    limits
        Memory limits of the devices, which hold besides those of the instance; None for no others.

    Returns
    -------
    list of Order
        Orders within the memory limits, compared at earliest start times; empty if no block fits.
    """
    few = min(instance.microbatches, params.short * instance.devices)
    short = _Runs(replace(instance, microbatches=few), work, params, limits)
    whole = _Runs(instance, work, params, limits)
    begun = [tried for block in blocks for tried in short.run(block, Setting())]
    kept = short.refined(nsmallest(params.kept, begun, key=_cost))
    found = whole.refined([tried for one in kept for tried in whole.run(one.block, one.setting)])
    return [tried.run.order for tried in sorted(found, key=_cost)]


class _Tried(NamedTuple):
    """A run of a block under a setting."""

    block: Ints
    setting: Setting
    run: Run


def _cost(tried: _Tried) -> int:
    return tried.run.cost


class _Runs:
    """The runs of an instance, of which only some are granted."""

    def __init__(self, instance: Instance, work: int, params: VBlockParams, limits: Ints | None) -> None:
        self._instance, self._problem, self._params = instance, list_problem(instance), params
        if limits is not None:
            own = self._problem.devices["limit"]
            self._problem.devices["limit"] = np.minimum(own, limits)
        self._problem.devices["paired"] = -1  # a pair would start what a plan has for later
        self._left = max(params.least_runs, work // (6 * instance.devices * instance.microbatches))

    def run(self, block: Ints, setting: Setting) -> Iterator[_Tried]:
        """Yield the run of a block; nothing if memory does not suffice, or if no more runs are granted."""
        if self._left > 0:
            self._left -= 1
            run = _run(self._instance, self._problem, block, setting)
            if run is not None:
                yield _Tried(block, setting, run)

    def refined(self, kept: list[_Tried]) -> list[_Tried]:
        """Return each run or, if one is found, a cheaper run of its block under another setting."""
        for _ in range(self._params.passes):
            for key, values in _choices(self._params).items():
                kept = [self._best(tried, key, values) for tried in kept]
        return kept

    def _best(self, tried: _Tried, key: str, values: tuple[Any, ...]) -> _Tried:
        settings = [replace(tried.setting, **{key: value}) for value in values]
        others = [
            run for setting in settings if setting != tried.setting for run in self.run(tried.block, setting)
        ]
        return min([tried, *others], key=_cost)


def _run(instance: Instance, problem: ListProblem, block: Ints, setting: Setting) -> Run | None:
    """Return the run of a block at the costs of the instance; None if memory does not suffice."""
    rule = DueDateRule(setting.pace, setting.wait, setting.overrun, setting.reserve)
    due, n = due_dates(instance, problem, rule), instance.microbatches
    state = new_state(problem.stages.copy(), problem.devices.copy(), problem.local, n, 1)
    plan = _plan(reordered(block, n, _SEPARATE, False), setting)
    return run_of(instance, state) if run_planned(state, plan, due, setting.patience) else None


def _plan(table: Ints, setting: Setting) -> Ints:
    """Return the plan of `run_planned` that a table of `reordered` gives under a setting."""
    devices = len(table)
    most = WEIGHT if setting.weights else WEIGHT - 1
    planned = [_planned(passes[(passes >= 0) & (passes <= most)], setting.tail) for passes in table]
    plan = np.full((devices, max(map(len, planned)), 2), -1, np.int64)
    for device, passes in enumerate(planned):
        lower = (passes == 0) | (passes == 3)
        plan[device, : len(passes), 0] = np.where(
            passes < 2, OpKind.F, np.where(passes < WEIGHT, OpKind.B, OpKind.W)
        )
        plan[device, : len(passes), 1] = np.where(lower, device, 2 * devices - 1 - device)
    return plan


def _planned(passes: Ints, tail: int) -> Ints:
    """Return the passes up to the last F, or before the first of the last `tail` F's."""
    forwards = np.flatnonzero(passes < 2)
    if tail == 0:
        return passes[: forwards[-1] + 1]
    return passes[: forwards[-tail]] if tail < len(forwards) else passes[:0]
