"""The records from which a run of list scheduling starts, and the order and the cost that the run finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tightpipe.core.budget import Budget
from tightpipe.core.errors import NoScheduleError
from tightpipe.core.graph_arrays import arrays_of
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints, Records

from .list_state_kernel import DEVICE, STAGE, Fusing, State, new_state
from .stage_costs import stage_costs


class ListProblem(NamedTuple):
    """The instance as records, in the state before any operation starts.

    Parameters
    ----------
    stages
        The stages of all routes, those of route 0 first, as records `STAGE` of shape (S,).
    devices
        The p devices, as records `DEVICE` of shape (p,).
    local
        For each device the indices in `stages` of its stages, by ascending number of the stage, shape
        (p, S / p).
    """

    stages: Records
    devices: Records
    local: Ints


class Run(NamedTuple):
    """The order of one run, and its cost in ticks at the times of the run."""

    order: Order
    cost: int


def list_problem(instance: Instance) -> ListProblem:
    """Return an instance as records, in the state before any operation starts."""
    p, routes = instance.devices, len(instance.placement.routes)
    stages, devices = np.zeros(routes * instance.stages, STAGE), np.zeros(p, DEVICE)
    for route, mine in enumerate(np.split(stages, routes)):
        costs = stage_costs(instance, route)
        mine["home"], mine["number"], mine["route"] = costs.device, np.arange(instance.stages), route
        mine["fused"] = costs.fused
        mine["duration"], mine["delta"], mine["lag"] = costs.duration.T, costs.delta.T, costs.lag.T
        devices["limit"] = costs.limit
    devices["paired"] = arrays_of(instance).devices["paired"]
    by_home = np.lexsort((stages["route"], stages["number"], stages["home"]))
    return ListProblem(stages, devices, by_home.reshape(p, -1))


def run_in_slices(
    instance: Instance,
    problem: ListProblem,
    advance: Callable[[State, int], None],
    budget: Budget,
    fusing: Fusing,
) -> Run | None:
    """Run list scheduling, and return the order that it found and the cost; None if time is up before.

    Parameters
    ----------
    instance
        The instance to run.
    problem
        The records of the instance, which stay unchanged.
    advance
        Runs a number of further operations, and changes the state.
    budget
        The clock is looked at after a number of operations, the parameter `list.slice`.
    fusing
        Which backwards are fused.
    """
    routes = len(instance.placement.routes)
    records = problem.stages.copy(), problem.devices.copy(), problem.local
    state = new_state(*records, instance.microbatches, routes, fusing)
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

    Parameters
    ----------
    instance
        The instance that was run.
    family
        Name of the heuristic, for the error.
    runs
        The runs whose orders are compared, the one with the least cost first.
    budget
        When its time is up, no further order is looked at.

    Raises
    ------
    NoScheduleError
        If there is no run, because time was up before the first one ended.
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
