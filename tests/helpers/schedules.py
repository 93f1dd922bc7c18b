"""Schedules of an instance, for tests of what holds in all of them."""

from __future__ import annotations

from helpers.cases import random_order, serial_order
from tightpipe import Instance, Schedule, retime, validate
from tightpipe.base.errors import NoScheduleError
from tightpipe.heuristics import HEURISTICS
from tightpipe.solver.engine.run import in_queue_order


def schedules_of(instance: Instance, seed: int) -> list[Schedule]:
    """Return a serial one, a random one and those of the heuristics, microbatches first-in-first-out."""
    orders = [serial_order(instance), random_order(instance, seed)]
    for heuristic in HEURISTICS.values():
        if instance.placement.name in heuristic.placements:
            try:
                orders.append(heuristic.order(instance))
            except NoScheduleError:  # not every heuristic fits every limit
                continue
    found = [retime(instance, order) for order in orders]
    return [in_queue_order(schedule) for schedule in found if validate(instance, schedule) == []]
