"""An order as arrays for the compiled simulator of noise: what operations wait for and how long they take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.graph_arrays import arrays_of, nodes_of
from ..core.inputs import NOTHING, Inputs, inputs_of
from ..core.instance import Instance
from ..core.operation import OpKind
from ..core.schedule import Order
from ..core.simulate_kernel import new_run
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
    p = instance.devices
    device = np.repeat(np.arange(p), np.diff(order.offsets))
    inputs = inputs_of(instance, order)
    busy = instance.costs.link_occupancy > 0
    part, planned = _parts(instance, order), new_run(arrays_of(instance), order).ticks.astype(np.float64)
    return OrderGraph(
        offsets=order.offsets,
        home=device,
        joined=order.pairs,
        part=part,
        scale=planned / _apart(instance, order),
        planned=planned,
        source=np.where(inputs.source == NOTHING, len(order), inputs.source),
        message=_messages(instance, order, inputs),
        lag=inputs.lag.astype(np.float64),
        link=np.where(busy & (inputs.receiver >= 0), device * p + inputs.receiver, -1),
        links=p * p,
        occupancy=instance.costs.link_occupancy,
    )


def _apart(instance: Instance, order: Order) -> Floats:
    """Return the sum of planned durations that each operation's random duration is compared with, in ticks.

    It is the sum over both operations of a pair, and over the B and the W of a BW. So under noise a pair or a
    BW takes its planned ticks times the ratio of its random to its planned durations.
    """
    graph, node = arrays_of(instance), nodes_of(instance, order)
    apart = graph.nodes["duration"][node].astype(np.float64)
    (fused,) = np.nonzero(order.operations[:, 0] == _BW)
    there = graph.nodes[node[fused]]
    apart[fused] += graph.nodes["duration"][graph.node[_W, there["mb_class"], there["stage"]]]
    first = np.flatnonzero(order.pairs)
    apart[first] = apart[first + 1] = apart[first] + apart[first + 1]
    return apart


def _parts(instance: Instance, order: Order) -> Ints:
    """Return, for each operation, the two rows of the flattened durations of `Times` whose sum it takes.

    For a BW these are the rows of its B and its W; for another operation, its own row and the row of zeros.
    """
    kind, stage, microbatch = order.operations.T
    size = instance.stages * instance.microbatches
    first = np.where(kind == _BW, _B, kind) * size + stage * instance.microbatches + microbatch
    second = np.where(kind == _BW, first + (_W - _B) * size, 3 * size)
    return np.ascontiguousarray(np.stack([first, second], axis=1))


def _messages(instance: Instance, order: Order, inputs: Inputs) -> Ints:
    """Return the row of the flattened lags of `Times` that has the message which each operation waits for.

    It is the last row, the row of zeros, for an operation that waits for no message.
    """
    kind, stage, microbatch = order.operations.T
    size = instance.stages * instance.microbatches
    row = np.where(kind == _F, 0, size) + stage * instance.microbatches + microbatch
    return np.where(inputs.message, row, 2 * size)
