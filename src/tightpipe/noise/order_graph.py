"""An order as arrays for the compiled simulator of noise, and the random times of a block of samples."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..base.errors import InputError
from ..kernels.arrays import Bools, Floats, Ints
from ..model.graph_arrays import NOTHING, Inputs, arrays_of, input_of, inputs_of, nodes_of
from ..model.instance import Instance
from ..model.operation import COMPUTES, OpKind
from ..model.schedule import Order
from ..model.simulate_kernel import new_run

BLOCK = 32
"""Number of samples in a block; the samples of a block are drawn and simulated at once."""


_F, _B, _W, _BW = (int(kind) for kind in COMPUTES)


class Times(NamedTuple):
    """The ticks that each operation and each message takes in every sample of a block.

    The instance has S stages, n microbatches and p devices; K is `BLOCK`. Kinds are F, B and W: a fused
    backward takes as long as its B and its W. Times belong to operations and not to places in an order, so an
    operation takes the same time in every schedule of the instance.
    """

    duration: Floats  # (3, S, n, K) of each F, B and W
    lag: Floats  # (2, S, n, K) of the message that each F and B (without B, W) waits for; 0 where for none
    moment: Floats  # (p, K) begin of each device's stall: share of its planned span, or of the makespan
    stall: Floats  # (p, K) ticks for which each device then stands still; 0 for no stall


class NoiseModel(Protocol):
    """The protocol of a model of noise, whose ``str`` is the text that the option ``--noise`` takes."""

    def check(self, instance: Instance) -> None:
        """Raise an InputError if the model does not fit the instance."""

    def apply(self, instance: Instance, times: Times, random: np.random.Generator) -> None:
        """Change the times of a block of samples in place, with random numbers from `random`."""


def planned_times(instance: Instance) -> Times:
    """Return times without noise for a block of samples."""
    graph = arrays_of(instance)
    shape = len(COMPUTES) - 1, instance.stages, instance.units, BLOCK
    node = graph.node[:, graph.mb_class].transpose(0, 2, 1)
    waiting = np.stack([node[_F], np.where(node[_B] < 0, node[_W], node[_B])])  # without B, W waits for it
    waits, edges = input_of(graph, graph.nodes[waiting])
    planned = np.where(node < 0, 0, graph.nodes["duration"][node])
    duration, lags = np.empty(shape), np.empty((2, *shape[1:]))
    duration[:], lags[:] = planned[..., None], np.where(waits & (waiting >= 0), edges["lag"], 0)[..., None]
    return Times(duration, lags, np.zeros((instance.devices, BLOCK)), np.zeros((instance.devices, BLOCK)))


def devices_of(instance: Instance) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return the device that runs each stage for each microbatch, shape (S, n)."""
    graph = arrays_of(instance)
    devices: np.ndarray[tuple[int, int], np.dtype[np.int64]] = graph.nodes["device"][
        graph.node[OpKind.F, graph.mb_class].T
    ]
    return devices


def messages_on(instance: Instance, sender: int, receiver: int) -> Bools:
    """Return whether each F and B waits for a message from one device to another, shape (2, S, n)."""
    devices = devices_of(instance)
    found = np.zeros((2, *devices.shape), np.bool_)
    crosses = (devices[:-1] == sender) & (devices[1:] == receiver)
    back = (devices[1:] == sender) & (devices[:-1] == receiver)
    found[OpKind.F, 1:], found[OpKind.B, :-1] = crosses, back
    return found


def check_device(instance: Instance, key: str, device: int) -> None:
    """Raise an InputError if the instance has no device with the number `device`."""
    if not 0 <= device < instance.devices:
        raise InputError(f"the instance has devices 0..{instance.devices - 1}", key=key, value=device)


class OrderGraph(NamedTuple):
    """The operations of an order, numbered by its rows from 0 to N - 1, and what they wait for.

    Row N stands for no operation; its end is time 0. The rows of the durations and of the lags are those of
    `Times`, made flat by `flat`: one for each operation or message, and a last row of zeros.
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
    ready: Floats  # (N,) tick before which the operation does not start


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
        ready=_ready(instance, order),
    )


def _ready(instance: Instance, order: Order) -> Floats:
    """Return the tick before which each operation does not start: an F waits for the parameters."""
    found, step = np.zeros(len(order)), instance.barrier
    if step is not None:
        (rows,) = np.nonzero(order.operations[:, 0] == _F)
        found[rows] = np.array(step.ready)[order.operations[rows, 1]]
    return found


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
    """Return for each operation the rows of the flattened durations of `Times` whose sum it takes.

    For a BW these are the rows of its B and its W; for another operation, its own row and the row of zeros.
    """
    kind, stage, microbatch = order.operations.T
    size = instance.stages * instance.units
    first = np.where(kind == _BW, _B, kind) * size + stage * instance.units + microbatch
    second = np.where(kind == _BW, first + (_W - _B) * size, 3 * size)
    return np.ascontiguousarray(np.stack([first, second], axis=1))


def _messages(instance: Instance, order: Order, inputs: Inputs) -> Ints:
    """Return the row of the flattened lags of `Times` that has the message which each operation waits for.

    It is the last row, the row of zeros, for an operation that waits for no message.
    """
    kind, stage, microbatch = order.operations.T
    size = instance.stages * instance.units
    row = np.where(kind == _F, 0, size) + stage * instance.units + microbatch
    return np.where(inputs.message, row, 2 * size)
