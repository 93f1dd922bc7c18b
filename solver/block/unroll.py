"""Schedules of many microbatches from a repeating block."""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule

from ..queues import Queues, Word, order_of, queues_of
from .block import Block


def unrolled(block: Block, instance: Instance) -> Schedule:
    """Return a schedule of an instance that repeats a block: a part of its endless schedule, retimed.

    Parameters
    ----------
    block
        A valid block for the costs, the placement and the memory of the instance.
    instance
        The instance to schedule, which must not flush between iterations.

    Returns
    -------
    Schedule
        Each device runs the operations of as many consecutive microbatches as the instance has, in their
        sequence in the endless schedule. So the schedule holds no more memory than the endless one, and never
        deadlocks. Its times are the best for that order, so time that missing microbatches leave free in
        warm-up and cool-down is used. The first microbatch may be any of the block's; all are tried, and the
        cheapest schedule is returned.
    """
    queues = queues_of(instance)
    choices = (_words(block, queues, skipped) for skipped in range(block.shape.copies))
    return min((retime(instance, order_of(queues, words)) for words in choices), key=cost)


def _words(block: Block, queues: Queues, skipped: int) -> list[Word]:
    """Return the word of each device for a schedule that begins with microbatch `skipped` of the block.

    `skipped` is the number of this microbatch, from 0, among the block's microbatches of each route.
    """
    shape, period = block.shape, block.period
    count = queues.instance.microbatches // len(queues.instance.placement.routes)
    instances: list[list[tuple[int, int]]] = [[] for _ in range(queues.instance.devices)]
    for operation, start in block.start.items():
        route, copy = divmod(operation.microbatch, shape.copies)
        queue = queues.index[operation.kind, route, operation.stage]
        first = copy < skipped  # number of the first repetition whose microbatch is kept
        last = (skipped + count - 1 - copy) // shape.copies
        instances[shape.device(operation)] += [
            (start + i * period, queue) for i in range(int(first), last + 1)
        ]
    return [[queue for _, queue in sorted(device)] for device in instances]
