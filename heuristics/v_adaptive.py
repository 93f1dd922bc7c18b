"""V schedules whose building block is chosen for the costs and the memory limits of the instance.

Blocks of many offsets (`v_blocks`) are repeated, squeezed and reordered in time units, as for V-Min and
V-Half. That gives each device a sequence of F's and B's, which is run at the costs of the instance: W's fill
the time in which the device would idle, and the last operations are chosen by due dates (`planned_kernel`).
The cheapest result is kept. So the order depends on the costs, while those of V-Min and V-Half do not.

Which block is best is decided in two steps, within a fixed amount of work. First all blocks within memory run
under one rule, and then the best few under many rules. If the instance is large, fewer blocks are tried: those
that make the most of the memory.

Source: the search for V schedules in Qi et al., "Pipeline Parallelism with Controllable Memory",
arXiv:2405.15362, section 3; the runs at real costs are tightpipe's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Any

import numpy as np

from tightpipe.core.errors import NoScheduleError
from tightpipe.core.instance import Instance
from tightpipe.core.instance_arrays import arrays_of
from tightpipe.core.metrics import cost
from tightpipe.core.operation import OpKind
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints

from .due_date import DueDateRule, due_dates
from .family import check_placement
from .list_problem import ListProblem, Run, list_problem, run_of
from .planned_kernel import run_planned
from .v_blocks import blocks_with_peaks
from .v_reorder_kernel import WEIGHT, reordered

_WORK = 2_000_000  # operations that all runs together may place; about a second
_LEAST_RUNS = 8
_KEPT = 6  # number of blocks that run under many rules
_PASSES = 2  # how often each number of a rule is chosen anew
_RETIMED = 3  # number of orders of least simulated cost that are compared by their exact cost
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
    """

    tail: int = 2
    pace: float = 1.0
    wait: float = 0.5
    reserve: float = 0.0
    overrun: float = 0.25
    patience: float = 0.5


_CHOICES: dict[str, tuple[Any, ...]] = {
    "overrun": (0.0, 0.25, 0.5, 0.75),
    "tail": (0, 1, 2, 3, 4, 6),
    "patience": (0.0, 0.5, 1.0),
    "pace": (1.0, 1.5, 3.0),
    "reserve": (0.0, 1.0),
    "wait": (0.3, 0.5, 1.0),
}
"""The values of each number of a setting that are tried, in the sequence in which they are chosen."""


def v_adaptive_order(instance: Instance) -> Order:
    """Return the cheapest order that is found over all building blocks within the memory limits.

    Raises
    ------
    InputError, InfeasibleError
        If the placement is not v, or the instance has no schedule.
    NoScheduleError
        If no block fits into the memory limits.
    """
    check_placement(instance, "v-adaptive", "v")
    search = _Search(instance)
    found = search.refined(nsmallest(_KEPT, search.first_runs(), key=lambda tried: tried.run.cost))
    if not found:
        raise NoScheduleError("v-adaptive has no building block that fits into the memory limits")
    best = nsmallest(_RETIMED, found, key=lambda tried: tried.run.cost)
    return min((tried.run.order for tried in best), key=lambda order: cost(retime(instance, order)))


@dataclass(frozen=True, slots=True)
class _Tried:
    """A run of a block under a setting; `table` is the block in time units, repeated and reordered."""

    run: Run
    table: Ints
    setting: Setting


class _Search:
    """The runs of one instance, whose number is limited."""

    def __init__(self, instance: Instance) -> None:
        self._instance, self._problem = instance, list_problem(instance)
        operations = 6 * instance.devices * instance.microbatches
        self._runs = max(_LEAST_RUNS, _WORK // operations)

    def first_runs(self) -> Iterator[_Tried]:
        """Yield a run of each block within memory; at most half of all runs go to this."""
        blocks = _within(self._instance)[: self._runs // 2]
        for block in blocks:
            table = reordered(block, self._instance.microbatches, _SEPARATE)
            yield from self._tried(table, Setting())

    def refined(self, kept: list[_Tried]) -> list[_Tried]:
        """Return each kept run or, if one was found, a cheaper run of its block under another setting."""
        for _ in range(_PASSES):
            for key, values in _CHOICES.items():
                kept = [self._best(tried, key, values) for tried in kept]
        return kept

    def _best(self, tried: _Tried, key: str, values: tuple[Any, ...]) -> _Tried:
        settings = [replace(tried.setting, **{key: value}) for value in values]
        others = [s for s in settings if s != tried.setting]
        runs = [run for setting in others for run in self._tried(tried.table, setting)]
        return min([tried, *runs], key=lambda one: one.run.cost)

    def _tried(self, table: Ints, setting: Setting) -> Iterator[_Tried]:
        """Yield the run, unless memory did not suffice for it or no run is left."""
        if self._runs <= 0:
            return
        self._runs -= 1
        run = _run(self._instance, self._problem, table, setting)
        if run is not None:
            yield _Tried(run, table, setting)


def _within(instance: Instance) -> list[Ints]:
    """Return the blocks that may fit into memory; those that need most memory come first.

    A B may free some memory before its W does, so blocks may fit that hold one activation more than the limit.
    """
    arrays, p = arrays_of(instance), instance.devices
    blocks = blocks_with_peaks(p)
    if instance.memory_limit(0) is None:
        return [block for block, _ in reversed(blocks)]
    forward = arrays.delta[OpKind.F]
    smaller = np.minimum(forward[:p], forward[p:][::-1])
    most = max(limit // max(1, delta) for limit, delta in zip(arrays.limit, smaller, strict=True))
    return [block for block, peak in reversed(blocks) if peak <= most + 1]


def _run(instance: Instance, problem: ListProblem, table: Ints, setting: Setting) -> Run | None:
    rule = DueDateRule(setting.pace, setting.wait, setting.overrun, setting.reserve)
    due = due_dates(instance, problem, rule)
    stages, devices = problem.stages.copy(), problem.devices.copy()
    plan = _plan(table, setting.tail)
    done, rows = run_planned(
        stages, devices, problem.local, instance.microbatches, plan, due, setting.patience
    )
    return run_of(instance, rows, devices) if done else None


def _plan(table: Ints, tail: int) -> Ints:
    """Return the plan of `run_planned` from a table of `reordered`: all up to the last F's but `tail`."""
    devices = len(table)
    planned = [_planned(passes[(passes >= 0) & (passes < WEIGHT)], tail) for passes in table]
    plan = np.full((devices, max(map(len, planned)), 2), -1, np.int64)
    for device, passes in enumerate(planned):
        lower = (passes == 0) | (passes == 3)
        plan[device, : len(passes), 0] = np.where(passes < 2, OpKind.F, OpKind.B)
        plan[device, : len(passes), 1] = np.where(lower, device, 2 * devices - 1 - device)
    return plan


def _planned(passes: Ints, tail: int) -> Ints:
    forwards = np.flatnonzero(passes < 2)
    if tail == 0:
        return passes[: forwards[-1] + 1]
    return passes[: forwards[-tail]] if tail < len(forwards) else passes[:0]
