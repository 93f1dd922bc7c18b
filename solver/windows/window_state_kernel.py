"""The windows as arrays that rules narrow in place, with a trail that undoes it, and what the rules read.

All values lie in one flat array, so that the trail can name each by its position. The fields that rules read
are views of that array. Its first half holds the lower values: the least start of each item; for each item
and each queue of its device, the number of items that surely precede the item; and the least start of each
device's frame. The second half holds the upper values in the same sequence: the largest start of each item;
for each item and each queue, the rank from which on all items surely follow the item; and the largest start
of each frame. Lower values only rise and upper values only fall. If the windows of two states hold, their
intersection holds too: the larger of the two lower values and the smaller of the two upper values everywhere.

**Joint operations.** Windows are about items, and a joint operation is two or three items one behind the
other: B and W, or F, B and W. Each queue gets one *cut* time, which is at most the duration of its items
alone, and the cut times of the items of a joint operation together take no longer than the operation. So let
the items of a joint operation run one behind the other, with their cut times, so that the W ends with it. Let
an item that runs alone begin when it does, and end no later. Then the words of the devices stay, and nothing
that waits for an item, and no memory that it frees, has to wait any longer. The windows of the cut times hold
for these starts. They also hold if the F of a pair begins with the pair: it then runs earlier, and its
message had arrived. W is cut first, because paths between devices do not pass through it, then F, then B.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.kernels.compiled import compiled_inline
from tightpipe.model.graph_arrays import GraphArrays, arrays_of, arrays_without_pools, beside
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.params.proof import WindowParams
from tightpipe.params.solve_params import DEFAULTS


class HorizonArrays(NamedTuple):
    """The graph of an instance under one horizon, with Q queues and p devices.

    The durations in the graph are cut times, so that windows hold for joint operations, too.

    A queue has two numbers: one among all queues, and one among the queues of its device, from 0. The second
    one is meant by "the device's k-th queue".
    """

    graph: GraphArrays
    precedes: Bools  # (Q, Q) at [q, r]: the k-th item of q precedes the k-th of r, perhaps through others
    opening: Ints  # (p,) item that surely runs first on each device; -1 if unknown, or if frames are shared
    idle: Ints  # (p,) ticks that each device may idle between the start and the end of its frame
    deep: int  # the most predecessors, or followers, of an item that a rule looks at
    anchor: int  # the device whose frame starts at time 0; -1 if all devices share one frame
    tail: Ints  # (Q,) ticks at least from the end of an item of each queue to the end of the device's frame
    reach: int  # frames start at most so many horizons, and `reach_comm` ticks, before or after the anchor's
    reach_comm: int
    blocks: int  # iterations that each device runs one after another


def under_horizon(
    instance: Instance, horizon: int, params: WindowParams = DEFAULTS.windows, pooled: bool = True
) -> HorizonArrays:
    """Return the graph of an instance under a horizon in ticks, which says how long each device may idle."""
    arrays = _without_horizon(instance, pooled)
    return arrays._replace(idle=horizon + arrays.idle, deep=params.deep)


@lru_cache(maxsize=16)  # a search asks for the same instance under one horizon after another
def _without_horizon(instance: Instance, pooled: bool) -> HorizonArrays:
    """Return the arrays for a horizon of 0, of which rules look at no other item.

    All callers share these arrays. They can, because the compiled rules only read them.
    """
    graph = with_cut_times(arrays_of(instance)) if pooled else arrays_without_pools(instance)
    floating = not instance.whole
    devices = range(instance.devices)
    tail = _tails(instance, graph)
    shortest = [tail[graph.queues["device"] == d].min() for d in devices]
    returns = bool(graph.node[OpKind.B :, 0, 0].max() >= 0)  # whether microbatch 0 has a backward at stage 0
    longest = int(graph.edges["lag"].max(initial=0)) + graph.occupancy * len(graph.queue)
    return HorizonArrays(
        graph=graph,
        precedes=_closure(graph),
        opening=np.array([_opening(graph, d) if floating else -1 for d in devices]),
        idle=-graph.devices["work"] - shortest,
        deep=0,
        anchor=instance.placement.routes[0][0] if floating else -1,
        tail=tail,
        reach=1 if returns else instance.devices,
        reach_comm=0 if returns else instance.devices * longest,
        blocks=instance.iterations if instance.flush else 1,
    )


def _tails(instance: Instance, graph: GraphArrays) -> Ints:
    """Return the ticks from the end of an item to the end of a step: for its stage's reduction and optimizer.

    After an item that does not end its stage comes at least one that ends a stage of the device.
    """
    device, ends, step = graph.queues["device"], graph.queues["ends"], instance.barrier
    if step is None:
        return np.zeros(len(device), np.int64)
    reduce = np.array([step.reduce[s] if s >= 0 else 0 for s in ends.tolist()])  # type: ignore[index]
    least = [min(step.reduce[s] for s in instance.placement.stages_on(d)) for d in device.tolist()]  # type: ignore[index]
    return np.asarray(np.maximum(reduce, least) + graph.devices["optimizer"][device])


def _closure(graph: GraphArrays) -> Bools:
    """Return the transitive closure of "the k-th item of q precedes the k-th item of r", shape (Q, Q).

    Only queues of one class of microbatches wait for each other, so the closure is made class by class.
    """
    reach = np.zeros((len(graph.queues), len(graph.queues)), np.bool_)
    edges = graph.edges[graph.edges["pooled"] == 0]
    reach[edges["leader"], edges["follower"]] = True
    for mb_class in range(graph.node.shape[1]):
        nodes = graph.node[:, mb_class]
        own = np.unique(graph.nodes["queue"][nodes[nodes >= 0]])
        part = reach[np.ix_(own, own)]
        for via in range(len(own)):
            part |= part[:, via, None] & part[via]
        reach[np.ix_(own, own)] = part
    return reach


def _opening(graph: GraphArrays, device: int) -> int:
    """Return the item that is the first F of the device's lowest stage, -1 if the device runs two classes.

    Where all microbatches are of one class, everything else on the device waits for that F. That windows
    suppose nothing else about where frames begin is also used by `prefixes.search_prefixes`.
    """
    held = graph.nodes[(graph.nodes["device"] == device) & (graph.nodes["kind"] == OpKind.F)]
    if len(set(held["mb_class"].tolist())) > 1:
        return -1
    return int(held["first"][held["stage"].argmin()])


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


_MOST_RECORDED = 512  # changes for each item; of many classes, more would take too much memory

# Positions in WindowState.counter:
RECORDING, RECORDED = 0, 1  # 1 while changes are recorded on the trail, and the number of its entries
STEPS = 2  # number of items whose rules were applied
HEAD, LENGTH = 3, 4  # where the agenda begins in its ring, and how many items are on it


class WindowState(NamedTuple):
    """Windows, their trail and their agenda, as arrays that the compiled rules change in place.

    N is the number of items, p the number of devices, and M the largest number of queues on one device.
    """

    value: Ints  # (2 (N + N M + p),) the six fields that follow, one after the other
    earliest: Ints  # (N,) least start of each item, in ticks
    before: Ints  # (N, M) at [i, k]: number of items of the device's k-th queue that surely precede item i
    frame_earliest: Ints  # (p,) least start of each device's frame, in ticks
    latest: Ints  # (N,) largest start of each item, in ticks
    after: Ints  # (N, M) at [i, k]: rank in the device's k-th queue from which on all surely follow item i
    frame_latest: Ints  # (p,) largest start of each device's frame, in ticks
    trail: Ints  # (entries, 2) position in `value` of each change, and the value before that change
    agenda: Ints  # (N,) items whose rules have to be applied, as a ring buffer
    waiting: Bools  # (N,) whether each item is on the agenda
    low: Ints  # (M,) working copy of one item's row of `before`, while rules narrow it
    high: Ints  # (M,) working copy of one item's row of `after`
    cursor: Ints  # (M,) one position in each queue, for rules that walk through all of them
    counter: Ints  # (5,) the counters whose positions are named above


def open_state(arrays: HorizonArrays, horizon: int) -> WindowState:
    """Return the windows before any rule is applied, with a frame of `horizon` ticks.

    They decide the sequence of the items of each queue, and of the operations of one microbatch where one
    waits for the other. If every device has a frame of its own, each frame starts at most a horizon before or
    after the anchor's, because microbatch 0 starts and ends on the anchor within the anchor's frame, and
    passes every device meanwhile. If it does not end there, as stage 0 has no backward, a frame may start
    later. But devices whose frames all start later than all others end, and the longest communication after
    that, can run everything earlier. So in some cheapest schedule each frame starts within p horizons and p
    times that communication of any other one.
    """
    graph, devices = arrays.graph, len(arrays.graph.devices)
    far = arrays.reach * horizon + arrays.reach_comm
    frames = np.full(devices, far if arrays.anchor >= 0 else 0)
    if arrays.anchor >= 0:
        frames[arrays.anchor] = 0
    early = graph.queues["ready"][graph.queue] - frames[graph.items["home"]]
    after = graph.queues["duration"] + arrays.tail
    late = frames[graph.items["home"]] + horizon - after[graph.queue]
    before, after = _first_orders(arrays)
    value = np.concatenate([early, before.ravel(), -frames, late, after.ravel(), frames])
    return _state_of(value, *before.shape)


def copy_of(state: WindowState) -> WindowState:
    """Return an independent state with the same windows and an empty agenda."""
    return _state_of(state.value.copy(), *state.before.shape)


def meet(state: WindowState, other: WindowState) -> None:
    """Narrow the windows `state` in place to their intersection with the windows `other`."""
    half, mine, theirs = len(state.value) // 2, state.value, other.value
    np.maximum(mine[:half], theirs[:half], out=mine[:half])
    np.minimum(mine[half:], theirs[half:], out=mine[half:])


def _first_orders(arrays: HorizonArrays) -> tuple[Ints, Ints]:
    """Return the `before` and `after` that follow from queues, precedences and flushes, shape (N, M) each."""
    graph = arrays.graph
    mine, on_device = graph.queue[:, None], beside(graph)
    exists = on_device >= 0
    items, local = np.arange(len(mine)), graph.queues["local"][graph.queue]
    rank = items - graph.first[graph.queue]
    count = np.where(exists, np.diff(graph.first)[on_device], 0)
    block = rank * arrays.blocks // np.diff(graph.first)[graph.queue]
    before, after = (count * end[:, None] // arrays.blocks for end in (block, block + 1))
    before[items, local] = rank
    after[items, local] = rank + 1
    ranks = np.broadcast_to(rank[:, None], before.shape)
    leads, follows = arrays.precedes[on_device, mine] & exists, arrays.precedes[mine, on_device] & exists
    before[leads], after[follows] = ranks[leads] + 1, ranks[follows]
    return before, after


def _state_of(value: Ints, items: int, width: int) -> WindowState:
    """Return the state with these values, an empty trail and an empty agenda."""
    return WindowState(
        value,
        *_views(value[: len(value) // 2], items, width),
        *_views(value[len(value) // 2 :], items, width),
        trail=np.zeros((min(8 * len(value), _MOST_RECORDED * items), 2), np.int64),
        agenda=np.zeros(items, np.int64),
        waiting=np.zeros(items, np.bool_),
        low=np.zeros(width, np.int64),
        high=np.zeros(width, np.int64),
        cursor=np.zeros(width, np.int64),
        counter=np.zeros(5, np.int64),
    )


def _views(half: Ints, items: int, width: int) -> tuple[Ints, Ints, Ints]:
    """Return views of the starts, the orders and the frames in one half of the values."""
    orders = items * (1 + width)
    return half[:items], half[items:orders].reshape(items, width), half[orders:]


@compiled_inline
def raise_earliest(state: WindowState, item: int, time: int) -> None:
    """Set the least start of the item, in ticks."""
    _write(state, item, time)


@compiled_inline
def lower_latest(state: WindowState, item: int, time: int) -> None:
    """Set the largest start of the item, in ticks."""
    _write(state, _half(state) + item, time)


@compiled_inline
def raise_before(state: WindowState, item: int, k: int, count: int) -> None:
    """Set how many items of the device's k-th queue surely precede the item."""
    _write(state, len(state.agenda) + item * len(state.low) + k, count)


@compiled_inline
def lower_after(state: WindowState, item: int, k: int, count: int) -> None:
    """Set the rank in the device's k-th queue from which on all items surely follow the item."""
    _write(state, _half(state) + len(state.agenda) + item * len(state.low) + k, count)


@compiled_inline
def narrow_frame(state: WindowState, device: int, earliest: int, latest: int) -> None:
    """Set the least and the largest start of the device's frame, in ticks."""
    at = len(state.agenda) * (1 + len(state.low)) + device
    _write(state, at, earliest)
    _write(state, _half(state) + at, latest)


@compiled_inline
def undo(state: WindowState) -> None:
    """Take back every change since recording began, and stop recording."""
    for entry in range(state.counter[RECORDED] - 1, -1, -1):
        state.value[state.trail[entry, 0]] = state.trail[entry, 1]
    state.counter[RECORDED] = 0
    state.counter[RECORDING] = 0


@compiled_inline
def _half(state: WindowState) -> int:
    """Return the position in `value` at which the upper values begin."""
    return len(state.value) // 2


@compiled_inline
def _write(state: WindowState, at: int, value: int) -> None:
    """Write a value at a position, and record the old one on the trail while a supposition is tried."""
    if state.counter[RECORDING] == 1:
        entry = state.counter[RECORDED]
        state.trail[entry, 0] = at
        state.trail[entry, 1] = state.value[at]
        state.counter[RECORDED] = entry + 1
    state.value[at] = value
