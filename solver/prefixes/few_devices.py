"""The problem of a few devices alone: a view of the graph of a step, inside windows.

An operation of any other device takes its time, but never waits until that device is free. So all that is
left of the other devices is a least time between two operations of a microbatch. The loops over prefixes read
this view in place of the graph, because the graph has neither these least times nor windows, and because the
few queues that are left are numbered here as a microbatch passes them.

A prefix is extended by whole operations, and the windows of an instance with joint operations are about their
items. `start_windows` says why they hold for the operations as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints, Records, record
from tightpipe.model.graph import NO_LIMIT, graph_of
from tightpipe.model.graph_arrays import GraphArrays, arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.params.budget import UNLIMITED, Budget

from ..queues import queues_of
from ..windows import windows_of
from .table_kernel import FREE


class StartWindows(NamedTuple):
    """The windows of the F's and B's of an instance in all schedules of at most a given cost.

    There are V nodes, N items, of which a W has no window, and p devices. A W that waits for no B counts as
    a B.
    """

    graph: GraphArrays
    least: Ints  # (V,) as in `StepGraph`
    feasible: bool  # false if it is proven that no schedule costs so little; the arrays mean nothing then
    earliest: Ints  # (N,) least start in ticks
    latest: Ints  # (N,) largest start in ticks
    begin: Ints  # (p,) each device ends its operations within a horizon from this tick
    horizon: int  # the supposed cost in ticks
    rounds: int  # number of iterations that a flush divides; 1 if there is none


def start_windows(instance: Instance, target: int, budget: Budget = UNLIMITED) -> StartWindows:
    """Return the windows of the F's and B's of an instance in all schedules that cost at most a target.

    The instance `is_searchable` (`bounds.relaxed`). Where the deadline ends the work, the windows hold too;
    they are only wider than they could be.
    A prefix is extended by whole operations, and the windows are about the items of joint operations
    (`windows.window_state_kernel`). An item may end with its operation, but also begin with it: a BW is long
    enough for its B and then its W, and a pair for its F and then the BW, or for the BW and then its F. What
    they wait for is there when the operation starts, what waits for them waits until it ends, and they free
    memory no later. So for each operation some schedule of items that costs no more has the F, or the B, at
    its start.
    After the last operation of a device comes at least one of its reductions, and its optimizer.
    """
    graph, windows = arrays_of(instance), windows_of(queues_of(instance), target, budget)
    on = [graph.queues["device"] == d for d in range(instance.devices)]
    begin = windows.frames[1] - [windows.arrays.tail[mine].min() for mine in on]
    rounds = instance.iterations if instance.flush else 1
    least = np.array(graph_of(instance).least)
    return StartWindows(
        graph, least, windows.feasible, windows.earliest, windows.latest, begin, target, rounds
    )


_QUEUE = record(
    "number",  # its number in the graph
    "path",
    "device",  # from 0 to P - 1
    "backward",  # 1 if it holds B's, or W's that wait for no B; 0 if it holds F's
    "ahead",  # the queue of the slice whose item has to start first, -1 if there is none; see `_slices_ahead`
    "leaves",  # W's that each item leaves to be run, unless it is fused: 1 for a B with a W, else 0
    "count",  # number of its items
    "round",  # of these, the number between two flushes; `NO_LIMIT` if there are none
    "duration",
    "fused",  # ticks of an item with its W; 0 if there is none, or if that saves nothing
    "least",  # least work of an item and its W in ticks
    "moved",  # ticks of an item that runs earlier for nothing; `NO_LIMIT` if it would take memory
    "delta",  # memory that each item adds
    "passing",  # memory that each item takes at its start and frees at its end
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
    "saved",  # the most ticks by which a pair is shorter than the least work of its parts
    "begin",  # largest start of its frame in ticks, less what comes after its last operation
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
    together: Ints  # (Q, Q) ticks of an item of the first queue with a BW of the second, 0 if there are none
    horizon: int  # the supposed cost in ticks
    floor: int  # proven bound, from which on starts say what a schedule costs; `NO_LIMIT`: they never do


def few_devices(windows: StartWindows, devices: Sequence[int], floor: int = NO_LIMIT) -> FewDevices:
    """Return the problem that is left when only these devices run one operation at a time.

    The windows are feasible, and each of the devices is named once. Every schedule inside the windows is a
    solution of this problem. Between two operations of a microbatch on these devices lie at least the
    durations of its operations on other devices, and the communication. The problem leaves out that
    operations of other devices wait for each other, and that messages wait for a link. If the W's of a device
    differ, all count as the shortest one, and as freeing the most memory.

    A B that takes no memory may run earlier, in idle time that is long enough, and nothing gets worse. If the
    B was fused, its W runs in the place of the BW, which has to be long enough for it; if not, the BW moves
    as a whole. Of a pair the BW moves, too, and the F stays, if no pair is shorter than its F.
    """
    graph = windows.graph
    queues, paths = _queues_and_paths(windows, list(devices))
    queues["ahead"] = _slices_ahead(graph, queues)
    queues["round"] = queues["count"] // windows.rounds if windows.rounds > 1 else NO_LIMIT
    first, count = graph.first[queues["number"]], queues["count"]
    ranks = np.minimum(np.arange(count.max()), count[:, None] - 1)  # a shorter queue repeats its last item
    items = first[:, None] + ranks
    on = [np.flatnonzero(queues["device"] == d) for d in range(len(devices))]
    width = max(map(len, on))
    own, together = _devices(windows, list(devices)), _together(graph, queues)
    _set_work(graph, queues, own, together)
    return FewDevices(
        queues=queues,
        paths=paths,
        devices=own,
        earliest=windows.earliest[items],
        latest=windows.latest[items],
        on=np.array([np.pad(row, (0, width - len(row)), constant_values=-1) for row in on]),
        together=together,
        horizon=windows.horizon,
        floor=floor,
    )


def is_whole(graph: GraphArrays, devices: Sequence[int]) -> bool:
    """Return whether the problem of these devices leaves out nothing but waiting for links and reductions.

    Then its solutions say in which sequence every device runs its operations.
    """
    everything = range(len(graph.devices))
    costs = (graph.queues[weights_of(graph, d)][["duration", "delta"]].tolist() for d in everything)
    return sorted(devices) == list(everything) and all(len(set(each)) <= 1 for each in costs)


def operations_of(problem: FewDevices) -> int:
    """Return the number of F's and B's of the devices."""
    return int(problem.queues["count"].sum())


def weights_of(graph: GraphArrays, device: int) -> Ints:
    """Return the numbers of a device's queues of W's; there are several if its W's differ."""
    is_own = (graph.queues["device"] == device) & (graph.queues["kind"] == OpKind.W)
    return np.flatnonzero(is_own)


def _queues_and_paths(windows: StartWindows, devices: list[int]) -> tuple[Records, Records]:
    graph = windows.graph
    queues: list[tuple[int, ...]] = []
    paths: list[tuple[int, ...]] = []
    column = FREE + 2 * len(devices)
    for path in _paths_of(graph):
        kept = [i for i, node in enumerate(path) if graph.nodes[node]["device"] in devices]
        if not kept:
            continue
        own = graph.nodes[[path[i] for i in kept]]
        columns, begin = _under_way(graph, own), len(queues)
        for node, lag in zip(own, _lags(windows, path, kept), strict=True):
            place = devices.index(node["device"]), node["kind"] != OpKind.F, -1, node["fused"] > 0
            work = node["count"], 0, node["duration"], _saving(graph, node), 0, 0
            queues.append((node["queue"], len(paths), *place, *work, node["delta"], node["passing"], lag))
        paths.append((begin, len(queues), column, columns))
        column += columns
    return np.array(queues, _QUEUE), np.array(paths, _PATH)


def _saving(graph: GraphArrays, node: Records) -> int:
    """Return the ticks of a fused backward of a node; 0 if there is none, or if it saves nothing."""
    if not node["fused"]:
        return 0
    weight = graph.nodes[graph.node[OpKind.W, node["mb_class"], node["stage"]]]
    return int(node["fused"]) if node["fused"] < node["duration"] + weight["duration"] else 0


def _together(graph: GraphArrays, queues: Records) -> Ints:
    """Return the ticks of each pair of an F and a BW, 0 where they have no time of their own together."""
    found, there = np.zeros((len(queues), len(queues)), np.int64), graph.queues[queues["number"]]
    paired = graph.devices["paired"][there["device"]] == 1
    for f in np.flatnonzero(paired & (queues["backward"] == 0)):
        for b in np.flatnonzero((queues["device"] == queues["device"][f]) & (queues["leaves"] == 1)):
            found[f, b] = graph.together[there["device"][f], there["local"][f], there["local"][b]]
    return found


def _set_work(graph: GraphArrays, queues: Records, devices: Records, together: Ints) -> None:
    """Set the fields about work: `least` and `moved` of the queues, and `saved` of the devices."""
    device, duration, leaves = queues["device"], queues["duration"], queues["leaves"] == 1
    weight, alone = devices["weight"][device], graph.queues[queues["number"]]["fused"]
    least = np.where(leaves, np.minimum(duration + weight, alone), duration)
    shorter = (together > 0) & (together < duration[:, None])  # than the F of the pair
    paired, stays = (np.isin(device, device[some.any(axis=1)]) for some in (together, shorter))
    whole = leaves & (paired | ((queues["fused"] > 0) & (weight > queues["fused"])))
    stays |= (queues["delta"] > 0) | (queues["passing"] > 0) | (paired & (queues["backward"] == 0))
    queues["moved"] = np.where(stays, NO_LIMIT, np.where(whole, np.maximum(duration, alone), duration))
    queues["least"] = least
    saved = np.where(together > 0, least[:, None] + least - together, 0).max(axis=1)
    devices["saved"] = [max(0, saved[device == d].max()) for d in range(len(devices))]


def _slices_ahead(graph: GraphArrays, queues: Records) -> list[int]:
    """Return, for each queue, that of the slice which a slice follows at the same stage, or -1.

    The edges between slices lie within a device and have no lag. So all that they say of a sequence of
    operations is that the k-th item of the one queue starts before the k-th item of the other one.
    """
    here = {int(number): q for q, number in enumerate(queues["number"])}
    before, after = (graph.nodes[graph.edges[end]] for end in ("before", "after"))
    between = before["mb_class"] != after["mb_class"]
    ahead = dict(zip(after["queue"][between].tolist(), before["queue"][between].tolist(), strict=True))
    return [here[ahead[number]] if number in ahead else -1 for number in queues["number"].tolist()]


def _paths_of(graph: GraphArrays) -> list[list[int]]:
    """Return, for each class, the F and B nodes that its microbatches pass, in sequence.

    A slice passes its own F's and B's. Between the two it waits for later slices.
    """
    node = graph.node
    backward = np.where(node[OpKind.B] >= 0, node[OpKind.B], node[OpKind.W])[:, ::-1]
    paths = np.concatenate([node[OpKind.F], backward], axis=1).tolist()
    return [[v for v in path if v >= 0] for path in paths]


def _lags(windows: StartWindows, path: list[int], kept: list[int]) -> list[int]:
    """Return the least ticks from each kept operation's end to the start of the next kept one on the path.

    `kept` holds positions in `path`. The entry of the last kept operation is 0. Between the F and the B of a
    slice at a last stage that is not kept, that stage runs the F's of all later slices and then their B's.
    """
    graph, ticks = windows.graph, windows.least
    ends = zip(graph.edges["before"].tolist(), graph.edges["after"].tolist(), strict=True)
    travel = dict(zip(ends, graph.edges["lag"].tolist(), strict=True))
    last, lags = graph.node.shape[2] - 1, []
    meanwhile = int(ticks[_later_slices(graph, path)].sum())
    for here, there in pairwise(kept):
        between = int(ticks[path[here + 1 : there]].sum())
        between += meanwhile if here < last < there - 1 else 0
        lags.append(between + sum(travel.get(step, 0) for step in pairwise(path[here : there + 1])))
    return [*lags, 0]


def _later_slices(graph: GraphArrays, path: list[int]) -> list[int]:
    """Return the F's and B's at the last stage of the slices that follow the one on this path."""
    c, k = int(graph.nodes["mb_class"][path[0]]), max(1, graph.slices)
    later = graph.node[[OpKind.F, OpKind.B], c + 1 : c - c % k + k, -1].ravel().tolist()
    return [v for v in later if v >= 0]


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
    place = graph.node[:, held["mb_class"], held["stage"]]
    backward = np.where(place[OpKind.B] >= 0, place[OpKind.B], place[OpKind.W])
    freed = np.where(backward >= 0, graph.nodes["delta"][backward], 0)
    never_less = bool(((held["delta"] >= 0) & (held["delta"] + freed >= 0)).all())
    if taken <= 0 or first["stage"] != last["stage"] or not never_less:
        return count
    return min(count, int(limit) // taken)


def _devices(windows: StartWindows, numbers: list[int]) -> Records:
    graph, devices = windows.graph, np.zeros(len(numbers), DEVICE)
    weights = [graph.queues[weights_of(graph, d)] for d in numbers]
    devices["number"] = numbers
    devices["weight"] = [min(queues["duration"], default=0) for queues in weights]
    devices["freed"] = [-min(queues["delta"], default=0) for queues in weights]
    devices["limit"] = graph.devices["limit"][numbers]
    devices["begin"] = windows.begin[numbers]
    return devices
