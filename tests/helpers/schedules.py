"""Schedules of an instance, for tests of what holds in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from helpers.cases import random_order, serial_order
from tightpipe import Instance, Schedule, retime, validate
from tightpipe.base.errors import NoScheduleError
from tightpipe.heuristics import HEURISTICS
from tightpipe.registry.starts import schedule_of
from tightpipe.solver.engine.run import in_queue_order


def by_heuristics(instance: Instance) -> Iterator[Schedule]:
    """Yield the schedule of each heuristic that finds one; not every heuristic fits every limit."""
    for heuristic in HEURISTICS.values():
        if instance.placement.name in heuristic.placements:
            with suppress(NoScheduleError):
                yield schedule_of(instance, heuristic)


def schedules_of(instance: Instance, seed: int) -> list[Schedule]:
    """Return a serial one, a random one and those of the heuristics, microbatches first-in-first-out."""
    found = [retime(instance, order) for order in (serial_order(instance), random_order(instance, seed))]
    found += by_heuristics(instance)
    return [in_queue_order(schedule) for schedule in found if validate(instance, schedule) == []]
