"""Ticks for the items of joint operations, so that windows hold whatever runs jointly.

Windows are about items, and a joint operation is two or three items one behind the other: B and W, or F, B
and W. Each queue gets one *cut* time, which is at most the duration of its items alone, and the cut times of
the items of a joint operation together take no longer than the operation. So let the items of a joint
operation run one behind the other, with their cut times, so that the W ends with it. Let an item that runs
alone begin when it does, and end no later. Then the words of the devices stay, and nothing that waits for an
item, and no memory that it frees, has to wait any longer. The windows of the cut times hold for these starts.
They also hold if the F of a pair begins with the pair: it then runs earlier, and its message had arrived.

W is cut first, because paths between devices do not pass through it, then F, then B.
"""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph_arrays import GraphArrays
from tightpipe.model.operation import OpKind


def with_cut_times(graph: GraphArrays) -> GraphArrays:
    """Return the graph with the cut time of each queue in place of its duration, and the work to match."""
    queues, devices = graph.queues.copy(), graph.devices.copy()
    queues["duration"] = _cut_times(graph)
    work = queues["duration"] * np.diff(graph.first)
    devices["work"] = np.bincount(queues["device"], work, len(devices)).astype(np.int64)
    queues.flags.writeable = devices.flags.writeable = False  # as in the graph: Numba compiles for each type
    return graph._replace(queues=queues, devices=devices)


def _cut_times(graph: GraphArrays) -> Ints:
    alone, fused = graph.queues["duration"].tolist(), graph.queues["fused"].tolist()
    cut, weight = list(alone), weight_queues(graph)
    together = pair_times(graph)
    for b, w in weight.items():
        cut[w] = min(cut[w], max(0, fused[b] - alone[b]))
    for (f, b), ticks in together.items():
        cut[weight[b]] = min(cut[weight[b]], max(0, ticks - alone[f] - alone[b]))
    for (f, b), ticks in together.items():
        cut[f] = min(cut[f], max(0, ticks - alone[b] - cut[weight[b]]))
    for b, w in weight.items():
        cut[b] = min(cut[b], fused[b] - cut[w])
    for (f, b), ticks in together.items():
        cut[b] = min(cut[b], ticks - cut[f] - cut[weight[b]])
    return np.array(cut)


def weight_queues(graph: GraphArrays) -> dict[int, int]:
    """Return the queue of the W's of each queue of B's that have a W."""
    nodes = graph.nodes
    own = nodes[nodes["fused"] > 0]
    weights = nodes["queue"][graph.node[OpKind.W, own["mb_class"], own["stage"]]]
    return dict(zip(own["queue"].tolist(), weights.tolist(), strict=True))


def pair_times(graph: GraphArrays) -> dict[tuple[int, int], int]:
    """Return the ticks of each pair, by the queues of its F and its B; empty if there are no pairs."""
    if not graph.together.size:
        return {}
    kind, device, local = (graph.queues[name].tolist() for name in ("kind", "device", "local"))
    backwards = weight_queues(graph)
    return {
        (f, b): int(graph.together[device[f], local[f], local[b]])
        for f in range(len(kind))
        for b in backwards
        if kind[f] == OpKind.F and device[f] == device[b]
    }
