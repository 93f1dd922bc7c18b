"""The lines that dispatching rules choose from, and the weights of a rule, as arrays for `dispatch_kernel`.

Where microbatches are alike, each queue is a *line*. Where they differ, the queues of all classes at a stage
form one line, whose items run in a sequence of the microbatches. All W's of a device are then one line, in
which they stand in the sequence of their B's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Bools, Floats, Ints
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.operation import OpKind

from ..queues import Queues
from .words import EventGraph

# Each row of these arrays is what a run needs together, side by side in few lines of the processor's cache:
# with the records of the graph, which have several times as many fields, runs take a third longer.

# Columns of `DispatchState.heads`: the item that is the head of a line, -1 if there is none; when it may
# start as far as messages go, very late if that is not known or there is no item; the memory that has to be
# free for it to start; the tick before which it does not start; its ticks; its queue if that `COUNTS`, else
# -1; and when its device could start it, `NEVER` if it lacks anything.
ITEM, ARRIVAL, NEEDED, READY, DURATION, COUNTED, START = range(7)
# Columns of `DispatchState.costs`, of which three are as in `heads`; whether items of the queue take or give
# credits, or send over a link that may be busy; and the memory that an item adds.
LINE, WEIGHT, COUNTS, DELTA = 0, 1, 5, 6
# Columns of `DispatchState.after`: the item that waits for an item, -1 if there is none, its line, its device
# and the ticks from when the message leaves until it may start.
TARGET, THERE, HOME, LAG = range(4)
NEVER = 2**62
"""When a message arrives of which that is not known."""


class DispatchState(NamedTuple):
    """The lines that a rule chooses from, and how far a run has come.

    There are Q queues, M lines, N items, p devices, n microbatches, C kinds of credit and L links; `words`
    defines items, positions and credits. The arrays up to `work` never change.
    """

    costs: Ints  # (Q, 7) of each queue its line, the queue of the W's of a queue of B's or else -1, and so on
    after: Ints  # (N, 4) what waits for each item: `TARGET` and so on
    opens: Ints  # (N,) what `arrives` is before a run
    visits: Ints  # (V, n) queue of each microbatch at each visit, -1 for none; empty if all are alike
    first: Ints  # (M,) place in `member` of the first item of each line
    size: Ints  # (M,) number of items of each line
    fixed: Bools  # (M,) whether a line has its items from the beginning; W's join a line when their B's run
    offsets: Ints  # (p + 1,) device d has the lines offsets[d] to offsets[d + 1] - 1
    shares: (
        Floats  # (p, 2) one third of a device's word is so many items, and its memory so many units, over 1
    )
    fuse: Ints  # (Q,) row of the weights that decide whether a B is fused, -1 where that saves no time
    saved: Ints  # (Q,) ticks that a fused backward saves
    work: Ints  # (p,) least ticks that the items of each device take together, one at a time
    member: Ints  # (N,) queue of each item of each line
    joins: Ints  # (M,) number of items that have joined each line
    head: Ints  # (M,) number of items that have left each line
    ran: Ints  # (M,) number of items of each line that have run: those, and W's that ran with their B's
    heads: Ints  # (M, 7) what the head of each line waits for: `ITEM` and so on
    scores: Floats  # (M, 6) weights of each line on its device: three thirds of the word and the last three
    next: Ints  # (Q,) the next item of each queue
    credit: Ints  # (C,) credits given and not yet taken
    memory: Ints  # (p,) memory that each device holds
    free: Ints  # (p,) when the last item of each device ended
    idle: Ints  # (p,) ticks that each device has idled so far
    place: Ints  # (p,) next position of each device
    wake: Ints  # (p,) when each device next looks for an item to run
    arrives: Ints  # (N,) when what an item waits for is there, `NEVER` before that has run
    left: Ints  # (L,) when the last message on each link left
    item: Ints  # (N,) item at each position: the words that the rule gives
    joined: Ints  # (N,) how it runs with the next one: `SINGLE` or `FUSED`


def dispatch_state_for(queues: Queues, graph: EventGraph) -> DispatchState:
    """Return a state for runs on the instance of these queues, before the first run."""

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int64)

    arrays = graph.arrays
    p, items = queues.instance.devices, len(arrays.queue)
    count = np.array([queue.count for queue in queues.queues])
    home = np.array([queue.device for queue in queues.queues])
    line = _lines(queues)
    lines = int(line.max()) + 1
    _, a_queue = np.unique(line, return_index=True)  # of each line
    size = np.bincount(line, count, lines).astype(np.int64)
    weight, fuse, saved = _fusing(queues, graph, line)
    work = np.array([queue.count * queue.duration for queue in queues.queues]) - saved * count
    after, opens, all_wait = _after(graph, line)
    credits_used = (arrays.queues["takes"] >= 0).any(axis=1) | (arrays.queues["gives"] >= 0).any(axis=1)
    costs = np.zeros((len(count), 7), np.int64)
    needed = np.maximum(0, arrays.queues["delta"]) + arrays.queues["passing"]
    costs[:, LINE], costs[:, WEIGHT], costs[:, READY] = line, weight, arrays.queues["ready"]
    costs[:, NEEDED] = np.where(needed > 0, needed + _reserves(queues), -NEVER)
    costs[:, COUNTS] = (arrays.queues["link"] >= 0) | (credits_used & (not all_wait))
    costs[:, DURATION], costs[:, DELTA] = arrays.queues["duration"], arrays.queues["delta"]
    return DispatchState(
        costs=costs,
        after=after,
        opens=opens,
        visits=_queues_of_visits(queues, graph),
        first=np.cumsum(size) - size,
        size=size,
        fixed=arrays.queues["kind"][a_queue] != OpKind.W,
        offsets=np.searchsorted(home[a_queue], np.arange(p + 1)),
        shares=np.stack([3.0 / np.diff(graph.offsets), 1.0 / np.maximum(1, arrays.devices["limit"])], axis=1),
        fuse=fuse,
        saved=saved,
        work=np.bincount(home, work, p).astype(np.int64),
        member=np.repeat(np.arange(len(count)), count),
        **{name: ints(lines) for name in ("joins", "head", "ran")},
        heads=np.zeros((lines, 7), np.int64),
        scores=np.zeros((lines, 6)),
        next=ints(len(count)),
        credit=ints(arrays.credits),
        **{name: ints(p) for name in ("memory", "free", "idle", "place", "wake")},
        arrives=ints(items),
        left=ints(arrays.links),
        item=ints(items),
        joined=ints(items),
    )


def _after(graph: EventGraph, line: Ints) -> tuple[Ints, Ints, bool]:
    """Return the arrays `after` and `opens`, and whether these say all that an item waits for.

    A message from the same device takes no time. So an item may wait for one of its own device in the same
    way as for one of another, unless several wait for the same item, or it waits for several or for any of a
    pool. If there is such an item, credits are counted. W's need none, as they join a line behind their B's.
    """
    arrays = graph.arrays
    items = len(arrays.queue)
    after, source = np.full((items, 4), -1), arrays.items["source"].copy()
    after[:, TARGET] = arrays.items["target"]
    local = arrays.edges[arrays.edges["message"] == 0]
    local = local[arrays.queues["kind"][local["follower"]] != OpKind.W]
    nodes = arrays.nodes[local["after"]]
    waiting = np.repeat(nodes["first"], nodes["count"])
    waiting += np.arange(len(waiting)) - np.repeat(np.cumsum(nodes["count"]) - nodes["count"], nodes["count"])
    awaited = waiting + np.repeat(local["shift"], nodes["count"])
    alone = np.bincount(waiting, minlength=1).max() < 2 and np.bincount(awaited, minlength=1).max() < 2
    all_wait = bool(
        alone
        and not local["pooled"].any()
        and not (awaited < 0).any()
        and (source[waiting] < 0).all()
        and (after[awaited, TARGET] < 0).all()
    )
    lag = arrays.items["lag"].copy()
    if all_wait:
        source[waiting], after[awaited, TARGET], lag[waiting] = awaited, waiting, 0
    target = after[:, TARGET]
    after[:, THERE], after[:, HOME] = line[arrays.queue[target]], arrays.items["home"][target]
    after[:, LAG] = lag[target]
    return after, np.where(source >= 0, NEVER, 0), all_wait


def _queues_of_visits(queues: Queues, graph: EventGraph) -> Ints:
    """Return the array `visits`."""
    if not queues.instance.differ:
        return np.zeros((0, 0), np.int64)
    arrays = graph.arrays
    forward, backward, weight = (arrays.node[kind][arrays.mb_class].T for kind in range(3))
    # a W without B stands for it
    node = np.concatenate([forward, np.where(backward < 0, weight, backward)[::-1]])
    return np.ascontiguousarray(np.where(node < 0, -1, arrays.nodes["queue"][node]))


def _lines(queues: Queues) -> Ints:
    """Return the line of each queue, shape (Q,); those of one device lie next to each other."""
    if not queues.instance.differ:
        return np.arange(len(queues.queues))
    kinds, routes = arrays_of(queues.instance).queues["kind"], queues.instance.class_routes
    keys = []
    for kind, queue in zip(kinds.tolist(), queues.queues, strict=True):
        mb_class, stage = queue.members[0]
        own = () if kind == OpKind.W else (stage, routes[mb_class])
        keys.append((queue.device, kind, own))
    number = {key: line for line, key in enumerate(sorted(set(keys)))}
    return np.array([number[key] for key in keys])


def _roles(queues: Queues) -> list[list[OpKind]]:
    """Return the kinds of the lines of each device."""
    line = _lines(queues).tolist()
    kinds = [
        {line[q]: queues.queues[q].kind for q in queues.on(device)}
        for device in range(queues.instance.devices)
    ]
    return [[of[key] for key in sorted(of)] for of in kinds]


def _fusing(queues: Queues, graph: EventGraph, line: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the arrays `weight`, `fuse` and `saved`."""
    weight, fuse, saved = np.full((3, len(queues.queues)), -1)
    saved[:] = 0
    if not queues.instance.fusing_saves:
        for q, queue in enumerate(queues.queues):
            if queue.kind is OpKind.B:
                weight[q] = queues.index.get((OpKind.W, *queue.members[0]), -1)
        return weight, fuse, saved
    widest = max(map(len, _roles(queues)))
    for device in range(queues.instance.devices):
        mine = [q for q in queues.on(device) if queues.queues[q].kind is OpKind.B]
        rows = {one: widest + k for k, one in enumerate(sorted({int(line[q]) for q in mine}))}
        for q in mine:
            ticks = int(graph.arrays.queues[q]["fused"])
            weight[q] = w = queues.index.get((OpKind.W, *queues.queues[q].members[0]), -1)
            apart = queues.queues[q].duration + (queues.queues[w].duration if w >= 0 else 0)
            if 0 < ticks < apart:
                fuse[q], saved[q] = rows[int(line[q])], apart - ticks
    return weight, fuse, saved


def _reserves(queues: Queues) -> Ints:
    """Return the memory that an item of each queue must leave free, shape (Q,).

    An F leaves room for one F of each later slice and at each later stage of its route on the same device,
    those that its own microbatch may still need. So the oldest unfinished microbatch never waits for memory
    that younger ones hold. Every other item leaves none.
    """
    reserve = np.zeros(len(queues.queues), np.int64)
    routes, slices = queues.instance.class_routes, queues.instance.class_slices
    # queues of the F's of the same microbatches on each device
    held: dict[tuple[object, ...], list[int]] = {}
    for q, queue in enumerate(queues.queues):
        if queue.kind is OpKind.F:
            ((c, _),) = queue.members
            same = routes[c] if queues.instance.slices else c
            held.setdefault((queue.device, same), []).append(q)
    for mine in held.values():
        places = [(stage, slices[c]) for ((c, stage),) in (queues.queues[q].members for q in mine)]
        for q, (stage, j) in zip(mine, places, strict=True):
            later = [s > stage or i > j for s, i in places]
            reserve[q] = sum(queues.queues[r].delta for r, after in zip(mine, later, strict=True) if after)
    return reserve


Weights = Floats  # shape (R, FEATURES): row k has the weights of the k-th line of every device

# Of the weights of a line, number 0 counts at the start of the word, and fades out over its first third.
# Number 1 counts fully in the middle third, and number 2 grows to its full value over the last third. Weights
# 3 to 5 count likewise, times the device's place, which goes from 0 for the first device to 1 for the last.
FEATURES = 9
FULL = 6  # index of the weight of the share of the memory limit that is in use
WAITING = 7  # index of the weight that is subtracted for each tick of waiting for the head
DELAYING = 8  # index of the weight that is subtracted for each tick by which a head would delay the next one
_FUSING = 0.3  # first weight of fusing: a B for which nobody waits more than this, in units, is fused


def first_weights(queues: Queues, unit: float, hasty: bool = False) -> Weights:
    """Return the weights of a first rule: B before F, F of a later stage before F of an earlier one, W last.

    Backwards are fused where nobody waits long for the B. On devices of more than four stages, the rule does
    not put B before F of the latest stages. With two routes, it puts every F of route 1 before those of route
    0. `unit` ticks of waiting count as much as 1 in a score; where the rule is `hasty`, ten times as much, so
    that W's fill most gaps. Where microbatches differ, `unit` ticks by which a W delays others also count as
    much as 1. There is a row for each line of the device with most lines and, where fused backwards save
    time, of the one with most lines of B's.
    """
    roles = _roles(queues)
    widest = max(roles, key=len)
    weights = np.zeros((len(widest), FEATURES))
    for role, kind in enumerate(widest):
        weights[role, :3] = 4.0 if kind is OpKind.B else 2.0 + role / 2 if kind is OpKind.F else 0.0
    if queues.instance.fusing_saves:
        fusing = np.zeros((max(kinds.count(OpKind.B) for kinds in roles), FEATURES))
        fusing[:, :3] = _FUSING
        weights = np.concatenate([weights, fusing])
    weights[:, WAITING], weights[:, DELAYING] = (10.0 if hasty else 1.0) / unit, 0.01 / unit
    if queues.instance.differ:  # their W's differ as well, so that a device can have one that fits a gap
        weights[len(widest) - 1, DELAYING] = 1.0 / unit
    if hasty:
        weights[len(widest) - 1, :3] = 1.0
    return weights
