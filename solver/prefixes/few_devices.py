"""The problem of a few devices alone: a view of the graph of a step, inside windows.

An operation of any other device takes its time, but never waits until that device is free. So all that is
left of the other devices is a least time between two operations of a microbatch. The loops over prefixes read
this view in place of the graph, because the graph has neither these least times nor windows, and because the
few queues that are left are numbered here as a microbatch passes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints, Records, record
from tightpipe.model.graph_arrays import GraphArrays
from tightpipe.model.operation import OpKind

from ..windows import Windows
from .table_kernel import FREE

_QUEUE = record(
    "number",  # its number in the graph
    "path",
    "device",  # from 0 to P - 1
    "backward",  # 1 if it holds B's, 0 if it holds F's
    "count",  # number of its items
    "duration",
    "delta",  # memory that each item adds
    "lag",  # least ticks from the end of an item to the start of the next one on the path; 0 at its end
)
_PATH = record(
    "begin",  # a microbatch passes the queues `begin` to `end` - 1
    "end",
    "column",  # the columns `column` to `column` + `columns` - 1 of a table are for its microbatches
    "columns",  # the most microbatches of the path that can be under way
)
DEVICE = record(
    "number",  # its number in the graph
    "weight",  # ticks of a W; the least if they differ
    "freed",  # memory that a W frees; the most if it differs
    "limit",  # memory limit, or `NO_LIMIT`
    "begin",  # largest start of its frame in ticks
)


class FewDevices(NamedTuple):
    """The F's and B's of a few devices along the path of each class of microbatches, and the devices' W's.

    P is the number of the devices, Q the number of their F and B queues, K the largest number of such queues
    on one device, and n the largest number of microbatches of one class. Each class that passes the devices
    has a *path*. The queues are numbered path after path, and along each path: a microbatch of its class
    passes them in this sequence.
    """

    queues: Records  # (Q,) of _QUEUE
    paths: Records  # (paths,) of _PATH
    devices: Records  # (P,) of DEVICE
    earliest: Ints  # (Q, n) least start of each item in ticks
    latest: Ints  # (Q, n) largest start of each item in ticks
    on: Ints  # (P, K) queues of each device, -1 where there are fewer
    horizon: int  # the supposed cost in ticks


def few_devices(windows: Windows, devices: Sequence[int]) -> FewDevices:
    """Return the problem that is left when only these devices run one operation at a time.

    Parameters
    ----------
    windows
        Feasible windows of an instance under the supposed cost.
    devices
        Numbers of the devices, in any sequence and each once.

    Notes
    -----
    Every schedule inside the windows is a solution of this problem. Between two operations of a microbatch on
    these devices lie at least the durations of its operations on other devices, and the communication. The
    problem leaves out that operations of other devices wait for each other, and that messages wait for a
    link. If the W's of a device differ, all count as the shortest one, and as freeing the most memory.
    """
    graph = windows.arrays.graph
    queues, paths = _queues_and_paths(graph, list(devices))
    first, count = graph.first[queues["number"]], queues["count"]
    ranks = np.minimum(np.arange(count.max()), count[:, None] - 1)  # a shorter queue repeats its last item
    items = first[:, None] + ranks
    on = [np.flatnonzero(queues["device"] == d) for d in range(len(devices))]
    width = max(map(len, on))
    return FewDevices(
        queues=queues,
        paths=paths,
        devices=_devices(windows, list(devices)),
        earliest=windows.earliest[items],
        latest=windows.latest[items],
        on=np.array([np.pad(row, (0, width - len(row)), constant_values=-1) for row in on]),
        horizon=windows.horizon,
    )


def is_whole(graph: GraphArrays, devices: Sequence[int]) -> bool:
    """Return whether the problem of these devices leaves out nothing but waiting for links.

    Then its solutions say in which sequence every device runs its operations.
    """
    everything = range(len(graph.devices))
    return sorted(devices) == list(everything) and all(len(weights_of(graph, d)) == 1 for d in everything)


def operations_of(problem: FewDevices) -> int:
    """Return the number of F's and B's of the devices."""
    return int(problem.queues["count"].sum())


def weights_of(graph: GraphArrays, device: int) -> Ints:
    """Return the numbers of a device's queues of W's; there are several if its W's differ."""
    is_own = (graph.queues["device"] == device) & (graph.queues["kind"] == OpKind.W)
    return np.flatnonzero(is_own)


def _queues_and_paths(graph: GraphArrays, devices: list[int]) -> tuple[Records, Records]:
    queues: list[tuple[int, ...]] = []
    paths: list[tuple[int, ...]] = []
    column = FREE + 2 * len(devices)
    for path in _paths_of(graph):
        kept = [i for i, node in enumerate(path) if graph.nodes[node]["device"] in devices]
        if not kept:
            continue
        own = graph.nodes[[path[i] for i in kept]]
        columns, begin = _under_way(graph, own), len(queues)
        for node, lag in zip(own, _lags(graph, path, kept), strict=True):
            place = devices.index(node["device"]), int(node["kind"] == OpKind.B)
            costs = (node[name] for name in ("count", "duration", "delta"))
            queues.append((node["queue"], len(paths), *place, *costs, lag))
        paths.append((begin, len(queues), column, columns))
        column += columns
    return np.array(queues, _QUEUE), np.array(paths, _PATH)


def _paths_of(graph: GraphArrays) -> list[list[int]]:
    """Return, for each class, the F and B nodes that its microbatches pass, in sequence."""
    nodes = graph.nodes
    along = graph.edges[nodes["kind"][graph.edges["after"]] != OpKind.W]
    following = dict(zip(along["before"].tolist(), along["after"].tolist(), strict=True))
    paths = []
    for node in np.flatnonzero(nodes["begin"] == nodes["end"]).tolist():  # those that wait for nothing
        paths.append([node])
        while paths[-1][-1] in following:
            paths[-1].append(following[paths[-1][-1]])
    return sorted(paths, key=lambda path: int(nodes["mb_class"][path[0]]))


def _lags(graph: GraphArrays, path: list[int], kept: list[int]) -> list[int]:
    """Return the least ticks from each kept operation's end to the start of the next kept one on the path.

    `kept` holds positions in `path`. The entry of the last kept operation is 0.
    """
    ends = zip(graph.edges["before"].tolist(), graph.edges["after"].tolist(), strict=True)
    travel = dict(zip(ends, graph.edges["lag"].tolist(), strict=True))
    ticks = graph.nodes["duration"]
    lags = []
    for here, there in pairwise(kept):
        between = int(ticks[path[here + 1 : there]].sum())
        lags.append(between + sum(travel[step] for step in pairwise(path[here : there + 1])))
    return [*lags, 0]


def _under_way(graph: GraphArrays, own: Records) -> int:
    """Return the most microbatches of a path that can be between their first and last operation on it.

    `own` are the nodes of the path. If the last operation is the B at the stage of the first operation, the
    device of that stage holds an activation of each such microbatch. The memory limit of the device then
    limits their number, provided that no other microbatch, of whatever class, lowers the memory of the device
    below what it was. Otherwise the result is the number of all microbatches of the class.
    """
    first, last = own[0], own[-1]
    count, taken, limit = int(first["count"]), int(first["delta"]), graph.devices["limit"][first["device"]]
    held = graph.nodes[(graph.nodes["device"] == first["device"]) & (graph.nodes["kind"] == OpKind.F)]
    backward = graph.nodes[graph.node[OpKind.B, held["mb_class"], held["stage"]]]
    never_less = bool(((held["delta"] >= 0) & (held["delta"] + backward["delta"] >= 0)).all())
    if taken <= 0 or first["stage"] != last["stage"] or not never_less:
        return count
    return min(count, int(limit) // taken)


def _devices(windows: Windows, numbers: list[int]) -> Records:
    graph, devices = windows.arrays.graph, np.zeros(len(numbers), DEVICE)
    weights = [graph.queues[weights_of(graph, d)] for d in numbers]
    devices["number"] = numbers
    devices["weight"] = [queues["duration"].min() for queues in weights]
    devices["freed"] = [-queues["delta"].min() for queues in weights]
    devices["limit"] = graph.devices["limit"][numbers]
    devices["begin"] = windows.frames[1][numbers]
    return devices
