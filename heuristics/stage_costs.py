"""What the stages of one class of microbatches cost, as tables over kinds and stages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.graph_arrays import arrays_of, input_of
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints


class StageCosts(NamedTuple):
    """The costs of F, B and W at each stage for one class of microbatches, with S stages and p devices."""

    duration: Ints  # (3, S) ticks
    fused: Ints  # (S,) ticks of a B with its W
    delta: Ints  # (3, S) memory that each operation adds
    lag: Ints  # (3, S) ticks from the end of what the operation waits for until its input has arrived
    device: Ints  # (S,) device of each stage
    limit: Ints  # (p,) memory limit of each device, `NO_LIMIT` where there is none


def stage_costs(instance: Instance, mb_class: int = 0) -> StageCosts:
    """Return the costs of the stages of an instance for a class of microbatches."""
    graph = arrays_of(instance)
    nodes = graph.nodes[graph.node[:, mb_class]]
    waits, edges = input_of(graph, nodes)
    return StageCosts(
        duration=nodes["duration"].copy(),
        fused=nodes["fused"][OpKind.B].copy(),
        delta=nodes["delta"].copy(),
        lag=np.where(waits, edges["lag"], 0),
        device=nodes["device"][0].copy(),
        limit=graph.devices["limit"].copy(),
    )
