"""Schedules of many microbatches from a repeating block."""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule

from ..queues import Queues, Word, order_of, queues_of
from .block import Block


def unrolled(block: Block, instance: Instance) -> Schedule:
    """Return the cheapest schedule that repeats a block, as a part of its endless schedule.

    Parameters
    ----------
    block
        A valid block for the costs, the placement and the memory of the instance.
    instance
        The instance with all its microbatches; it has no flush.

    Returns
    -------
    Schedule
        Each device runs the instances of the given number of consecutive microbatches in their sequence in
        the endless schedule, so they hold no more memory and never deadlock. The times are the best for that
        order: warm-up and cool-down move together where microbatches are missing. The first microbatch may
        be any of the block's; the best choice is taken.
    """
    queues = queues_of(instance)
    choices = (_words(block, queues, skipped) for skipped in range(block.shape.copies))
    return min((retime(instance, order_of(queues, words)) for words in choices), key=cost)


def _words(block: Block, queues: Queues, skipped: int) -> list[Word]:
    """Return the word of each device if the first microbatches of each route are skipped."""
    shape, period = block.shape, block.period
    count = queues.instance.microbatches // len(queues.instance.placement.routes)
    instances: list[list[tuple[int, int]]] = [[] for _ in range(queues.instance.devices)]
    for operation, start in block.start.items():
        route, copy = divmod(operation.microbatch, shape.copies)
        queue = queues.index[operation.kind, route, operation.stage]
        first = copy < skipped  # the first instance whose microbatch is not skipped
        last = (skipped + count - 1 - copy) // shape.copies
        instances[shape.device(operation)] += [
            (start + i * period, queue) for i in range(int(first), last + 1)
        ]
    return [[queue for _, queue in sorted(device)] for device in instances]
