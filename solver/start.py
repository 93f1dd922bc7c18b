"""The schedule that a solve starts from."""

from __future__ import annotations

from tightpipe.core.errors import InputError
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.operation import OpKind
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Order, Schedule
from tightpipe.core.validate import validate

from .queues import order_of, queues_of, tokens_of


def one_by_one(instance: Instance) -> Order:
    """Return the order that runs one microbatch after another, each W right after its B.

    This order is valid whenever the instance has a valid order.
    """
    devices: list[list[tuple[int, int, int]]] = [[] for _ in range(instance.devices)]
    for m in range(instance.microbatches):
        for s in range(instance.stages):
            devices[instance.device(s, m)].append((OpKind.F, s, m))
        for s in reversed(range(instance.stages)):
            devices[instance.device(s, m)] += [(OpKind.B, s, m), (OpKind.W, s, m)]
    return Order.from_lists(devices)


def in_queue_order(schedule: Schedule) -> Schedule:
    """Return a schedule that costs no more than `schedule`, with first-in-first-out queues.

    The docstring of the module `queues` proves that relabelled microbatches cost no more. Fused backwards are
    split where that costs nothing. `retime` then gives the order its best start times.
    """
    queues = queues_of(schedule.instance)
    words, joined = zip(*tokens_of(queues, schedule.order), strict=True)
    return retime(schedule.instance, order_of(queues, list(words), list(joined)))


def checked_start(instance: Instance, warm_start: Schedule | None) -> Schedule:
    """Return a valid schedule to start from: the warm start, or else one microbatch after another.

    The times of a warm start are kept if no better ones are found for its order.

    Raises
    ------
    InputError
        If the warm start is not a valid schedule of the instance.
    """
    if warm_start is None:
        return retime(instance, one_by_one(instance))
    violations = validate(instance, warm_start)
    if violations:
        raise InputError(f"the warm start is not a valid schedule: {violations[0]}")
    own = Schedule(instance, warm_start.order, warm_start.start, warm_start.end)
    return min(own, retime(instance, warm_start.order), key=cost)
