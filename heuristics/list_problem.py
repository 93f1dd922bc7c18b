"""The records from which a run of list scheduling starts, and the order and the cost that the run finds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.instance import Instance, Objective
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints, Records

from .list_state_kernel import DEVICE, STAGE
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
        mine["duration"], mine["delta"], mine["lag"] = costs.duration.T, costs.delta.T, costs.lag.T
        devices["limit"] = costs.limit
    by_home = np.lexsort((stages["route"], stages["number"], stages["home"]))
    return ListProblem(stages, devices, by_home.reshape(p, -1))


def run_of(instance: Instance, rows: Ints, devices: Records) -> Run:
    """Return the order that a run of list scheduling found, and its cost.

    Parameters
    ----------
    instance
        The instance that was run.
    rows
        Kind, stage and microbatch of each operation of each device, shape (p, operations per device, 3).
    devices
        The records of the devices after the run, shape (p,).
    """
    order = Order(rows, np.arange(len(devices) + 1) * rows.shape[1])
    if instance.objective is Objective.MAKESPAN:
        return Run(order, int(devices["end"].max()))
    return Run(order, int((devices["end"] - devices["first"]).max()))
