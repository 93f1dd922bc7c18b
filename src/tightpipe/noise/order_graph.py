"""An order as arrays for the compiled simulator of noise: what operations wait for and how long they take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.instance import Instance
from ..core.instance_arrays import InstanceArrays, arrays_of
from ..core.operation import OpKind
from ..core.schedule import Order
from ..kernels.arrays import Floats, Ints

_F, _B, _W, _BW = (int(kind) for kind in OpKind)


class OrderGraph(NamedTuple):
    """The operations of an order, numbered by its rows from 0 to N - 1, and what they wait for.

    Row N stands for no operation; its end is time 0.

    The rows of the durations and of the lags are those of `Times`, made flat by `order_run.flat`: one row for
    each operation or message, and a last row of zeros.

    If no operations are paired, these arrays stay right when the sequence of a device changes.
    """

    offsets: Ints  # (p + 1,) device d has the positions offsets[d] to offsets[d + 1] - 1
    home: Ints  # (N,) device of the operation
    joined: Ints  # (N,) 1 where an operation runs together with the one of the next row
    part: Ints  # (N, 2) rows of the durations whose sum the operation takes
    scale: Floats  # (N,) what the sum is multiplied with; less than 1 for a pair that saves time
    planned: Floats  # (N,) ticks that the operation, or the pair that it is in, takes without noise
    source: Ints  # (N,) row of the operation whose result it needs, N for none
    message: Ints  # (N,) row of the lags for the message with that result
    lag: Floats  # (N,) planned ticks of that message
    link: Ints  # (N,) link on which its own result leaves; -1 for none, or if links are never busy
    links: int  # number of links
    occupancy: int  # least ticks from one message of a link to the next


def order_graph_of(instance: Instance, order: Order) -> OrderGraph:
    """Return the graph of an order that has each operation of the instance once."""
    numbers = arrays_of(instance)
    kind, stage, microbatch = order.operations.T
    route, p = numbers.route[microbatch], instance.devices
    device = np.repeat(np.arange(p), np.diff(order.offsets))
    peer = numbers.peer[kind, route, stage]
    lag = numbers.lag[kind, route, stage]
    busy = instance.costs.link_occupancy > 0
    scale, planned = _durations(numbers, order, device)
    return OrderGraph(
        offsets=order.offsets,
        home=device,
        joined=order.pairs,
        part=_parts(instance, order),
        scale=scale,
        planned=planned,
        source=_sources(instance, order),
        message=_messages(instance, order, device),
        lag=lag.astype(np.float64),
        link=np.where(busy & (peer >= 0), device * p + peer, -1),
        links=p * p,
        occupancy=instance.costs.link_occupancy,
    )


def _durations(numbers: InstanceArrays, order: Order, device: Ints) -> tuple[Floats, Floats]:
    """Return `scale` and `planned` of the graph: each row's factor and its ticks without noise.

    The factor of a pair is its planned ticks over the sum of the planned durations of its two operations. So
    under noise a pair takes its planned ticks times the ratio of its random to its planned durations.
    """
    kind, stage, _ = order.operations.T
    apart = numbers.duration[kind, stage].astype(np.float64)
    planned, scale = apart.copy(), np.ones(len(order))
    first = np.flatnonzero(order.pairs)
    both = apart[first] + apart[first + 1]
    given = numbers.overlapped[device[first]]
    together = np.where((given >= 0) & (kind[first + 1] == _BW), given, both)
    planned[first] = planned[first + 1] = together
    scale[first] = scale[first + 1] = together / both
    return scale, planned


def _parts(instance: Instance, order: Order) -> Ints:
    """Return, for each operation, the two rows of the flattened durations of `Times` whose sum it takes.

    For a BW these are the rows of its B and its W; for another operation, its own row and the row of zeros.
    """
    kind, stage, microbatch = order.operations.T
    size = instance.stages * instance.microbatches
    first = np.where(kind == _BW, _B, kind) * size + stage * instance.microbatches + microbatch
    second = np.where(kind == _BW, first + (_W - _B) * size, 3 * size)
    return np.ascontiguousarray(np.stack([first, second], axis=1))


def _messages(instance: Instance, order: Order, device: Ints) -> Ints:
    """Return the row of the flattened lags of `Times` that has the message which each operation waits for.

    It is the last row, the row of zeros, for an operation that waits for no message.
    """
    kind, stage, microbatch = order.operations.T
    size = instance.stages * instance.microbatches
    numbers = arrays_of(instance)
    devices = numbers.device[numbers.route[microbatch]]
    rows = np.arange(len(order))
    before = devices[rows, np.maximum(stage - 1, 0)]
    behind = devices[rows, np.minimum(stage + 1, instance.stages - 1)]
    crosses = np.where(kind == _F, before, behind) != device
    row = np.where(kind == _F, 0, size) + stage * instance.microbatches + microbatch
    return np.where(crosses & (kind != _W), row, 2 * size)


def _sources(instance: Instance, order: Order) -> Ints:
    """Return the row of the operation whose result each operation needs, or N where it needs no result."""
    kind, stage, microbatch = order.operations.T
    none = len(order)
    rows = np.full(
        (len(OpKind), instance.stages + 2, instance.microbatches), none
    )  # a stage more on both sides
    rows[kind, stage + 1, microbatch] = np.arange(none)
    forward, backward, _, fused = rows
    behind = np.minimum(backward, fused)[stage + 2, microbatch]  # only one of the two is in the order
    own = forward[stage + 1, microbatch]
    of_backward = np.where(stage == instance.stages - 1, own, behind)
    of_forward, of_weight = forward[stage, microbatch], backward[stage + 1, microbatch]
    return np.select([kind == _F, kind == _W], [of_forward, of_weight], of_backward)
