"""What each operation of an order waits for, by rows of the order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kernels.arrays import Bools, Ints
from .graph_arrays import arrays_of, input_of, nodes_of
from .instance import Instance
from .schedule import Order

NOTHING = -1
"""Stands in place of a row where an operation waits for nothing."""


class Inputs(NamedTuple):
    """The input of each operation of an order, as arrays of shape (N,); every operation has one at most."""

    source: Ints  # row of the operation whose result it needs, or `NOTHING`
    lag: Ints  # ticks from when that result leaves its device until it has arrived
    message: Bools  # whether the result comes from another device
    receiver: Ints  # device to which the operation sends its own result; -1 if no other device needs it


def inputs_of(instance: Instance, order: Order) -> Inputs:
    """Return what each operation waits for, in an order that has every operation of the instance once."""
    graph, node = arrays_of(instance), nodes_of(instance, order)
    nodes = graph.nodes[node]
    rank = graph.rank[order.operations[:, 2]]
    waits, edges = input_of(graph, nodes)
    row = np.full(len(graph.items), NOTHING)
    row[nodes["first"] + rank] = np.arange(len(order))  # of a fused B, the row of its BW
    source = np.where(waits, row[graph.nodes["first"][edges["before"]] + rank], NOTHING)
    return Inputs(
        source, np.where(waits, edges["lag"], 0), waits & (edges["message"] == 1), nodes["receiver"]
    )
