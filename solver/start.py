"""The schedule that a solve starts from."""

from __future__ import annotations

import numpy as np

from tightpipe.core.errors import InputError
from tightpipe.core.graph_arrays import arrays_of
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.operation import OpKind
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Order, Schedule
from tightpipe.core.validate import validate

from .queues import order_of_tokens, queues_of, tokens_of


def one_by_one(instance: Instance) -> Order:
    """Return the order that runs one microbatch after another, each W right after its B.

    This order is valid whenever the instance has a valid order.
    """
    stages, n = instance.stages, instance.microbatches
    up, down = np.arange(stages), np.repeat(np.arange(stages)[::-1], 2)
    kind = np.concatenate([np.full(stages, OpKind.F), np.tile([OpKind.B, OpKind.W], stages)])
    stage = np.concatenate([up, down])
    there = [instance.has(OpKind(k), s) for k, s in zip(kind.tolist(), stage.tolist(), strict=True)]
    kind, stage = kind[there], stage[there]
    graph = arrays_of(instance)
    device = graph.nodes["device"][graph.node[OpKind.F, graph.mb_class]][:, stage].ravel()
    each = np.stack([np.tile(kind, n), np.tile(stage, n), np.repeat(np.arange(n), len(kind))], axis=1)
    by_device = np.argsort(device, kind="stable")
    return Order(each[by_device], np.searchsorted(device[by_device], np.arange(instance.devices + 1)))


def in_queue_order(schedule: Schedule) -> Schedule:
    """Return a schedule that costs no more than `schedule`, with first-in-first-out queues.

    The docstring of the module `queues` proves that relabelled microbatches cost no more. Fused backwards are
    split where that costs nothing. `retime` then gives the order its best start times.
    """
    queues = queues_of(schedule.instance)
    return retime(schedule.instance, order_of_tokens(queues, tokens_of(queues, schedule.order)))


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
    return in_best_times(instance, warm_start)


def in_best_times(instance: Instance, schedule: Schedule) -> Schedule:
    """Return a schedule that is valid for the instance with the best times that are known for its order.

    The instance of `schedule` may be another one, with another objective.
    """
    own = Schedule(instance, schedule.order, schedule.start, schedule.end)
    return min(own, retime(instance, schedule.order), key=cost)
