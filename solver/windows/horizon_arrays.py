"""What the compiled rules of windows read: the graph of an instance, and what a horizon supposes of it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tightpipe.core.graph_arrays import GraphArrays, arrays_of
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.params.proof import WindowParams
from tightpipe.core.params.solve_params import DEFAULTS
from tightpipe.kernels.arrays import Bools, Ints


class HorizonArrays(NamedTuple):
    """The graph of an instance under one horizon, with Q queues and p devices.

    A queue has two numbers: one among all queues, and one among the queues of its device, from 0. The second
    one is meant by "the device's k-th queue".
    """

    graph: GraphArrays
    precedes: Bools  # (Q, Q) at [q, r]: the k-th item of q precedes the k-th of r, perhaps through others
    opening: Ints  # (p,) item that surely runs first on each device; -1 if unknown, or if frames are shared
    idle: Ints  # (p,) ticks that each device may idle between the start and the end of its frame
    deep: int  # the most predecessors, or followers, of an item that a rule looks at
    anchor: int  # the device whose frame starts at time 0; -1 if all devices share one frame


def under_horizon(instance: Instance, horizon: int, params: WindowParams = DEFAULTS.windows) -> HorizonArrays:
    """Return the graph of an instance under a horizon in ticks, which says how long each device may idle."""
    arrays = _without_horizon(instance)
    return arrays._replace(idle=horizon - arrays.graph.devices["work"], deep=params.deep)


@lru_cache(maxsize=16)  # a search asks for the same instance under one horizon after another
def _without_horizon(instance: Instance) -> HorizonArrays:
    """Return the arrays for a horizon of 0, of which rules look at no other item.

    All callers share these arrays. They can, because the compiled rules only read them.
    """
    graph = arrays_of(instance)
    floating = not instance.whole
    devices = range(instance.devices)
    return HorizonArrays(
        graph=graph,
        precedes=_closure(graph),
        opening=np.array([_opening(graph, d) if floating else -1 for d in devices]),
        idle=-graph.devices["work"],
        deep=0,
        anchor=instance.placement.routes[0][0] if floating else -1,
    )


def _closure(graph: GraphArrays) -> Bools:
    """Return the transitive closure of "the k-th item of q precedes the k-th item of r", shape (Q, Q)."""
    reach = np.zeros((len(graph.queues), len(graph.queues)), np.bool_)
    edges = graph.edges[graph.edges["pooled"] == 0]
    reach[edges["leader"], edges["follower"]] = True
    for via in range(len(graph.queues)):
        reach |= reach[:, via, None] & reach[via]
    return reach


def _opening(graph: GraphArrays, device: int) -> int:
    """Return the item that is the first F of the device's lowest stage, -1 if the device runs two classes.

    Where all microbatches are of one class, everything else on the device waits for that F.
    """
    held = graph.nodes[(graph.nodes["device"] == device) & (graph.nodes["kind"] == OpKind.F)]
    if len(set(held["mb_class"].tolist())) > 1:
        return -1
    return int(held["first"][held["stage"].argmin()])
