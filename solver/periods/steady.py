"""The block that a schedule repeats between warm-up and cool-down."""

from __future__ import annotations

from collections import Counter

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind
from tightpipe.core.params.solve_params import DEFAULTS
from tightpipe.core.schedule import Schedule

from ..block import Block, Shape, period_bound, shortened
from ..improve.fold import repeating
from ..modelled import is_modelled
from ..queues import queues_of, words_of
from ..start import in_queue_order


def steady_block(schedule: Schedule, copies: int, least: int = DEFAULTS.blocks.least_equal) -> Block | None:
    """Return the block of `copies` microbatches of each route that a schedule repeats, if there is one.

    Parameters
    ----------
    schedule
        A valid schedule.
    copies
        Number of microbatches of each route in the block.
    least
        Least number of equal periods in the schedule.

    Returns
    -------
    Block or None
        The block runs the sequences of the part of the schedule that repeats, so it holds as much memory as
        the schedule does there. It has the least period that these sequences allow. None if no part of the
        schedule gives a block, or if blocks do not model a rule of the schedule's instance.

    Notes
    -----
    In several consecutive periods of the schedule, each device repeats one sequence of kinds and stages. Each
    operation in the first of these periods is a repetition of an operation of the block, which has the same
    kind, stage and route. Count the microbatches of the route that come before the operation's microbatch,
    and divide this number by `copies`: the remainder says which microbatch of the block the operation belongs
    to, and the quotient by how many periods the repetition lies later. The sequences of a few equal periods
    may deadlock if they are repeated for ever; then there is no block.
    """
    if not is_modelled(schedule.instance):
        return None
    schedule = in_queue_order(schedule)
    instance, shape = schedule.instance, Shape(schedule.instance, copies)
    words = words_of(queues_of(instance), schedule.order)
    if copies * len(instance.placement.routes) * least > instance.microbatches:
        return None
    first, length, found = repeating(schedule, words, copies)
    if found < least:
        return None
    ranks = _ranks(instance)
    period = _longest(shape)
    start: dict[Operation, int] = {}
    for row, begin, size in zip(schedule.order.to_lists(), first.tolist(), length.tolist(), strict=True):
        for place, (kind, stage, microbatch) in enumerate(row[begin : begin + size]):
            later, copy = divmod(ranks[microbatch], copies)
            operation = Operation(OpKind(kind), stage, instance.route(microbatch) * copies + copy)
            start[operation] = place - later * period
    if set(start) != set(shape.operations()):
        return None
    return shortened(Block(shape, period, start), period_bound(shape))


def _ranks(instance: Instance) -> list[int]:
    """Return, for each microbatch, how many microbatches of the same route come before it."""
    seen: Counter[int] = Counter()
    ranks = []
    for microbatch in range(instance.microbatches):
        route = instance.route(microbatch)
        ranks.append(seen[route])
        seen[route] += 1
    return ranks


def _longest(shape: Shape) -> int:
    """Return a period in ticks that no block needs to exceed: the sum of all durations and all lags."""
    lags = sum(wait.lag for m in range(shape.microbatches) for wait in shape.waits(m))
    return lags + sum(map(shape.duration, shape.operations()))
