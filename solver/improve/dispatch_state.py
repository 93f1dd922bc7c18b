"""The state of a run of a dispatching rule, as arrays for the compiled search."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints

from ..queues import Queues
from .event_graph import EventGraph


class DispatchState(NamedTuple):
    """The queues that a rule chooses from, and how far a run has come.

    There are Q queues, N items, p devices, C kinds of credit and L links; `event_graph` defines items,
    positions and credits. The arrays up to `work` never change.
    """

    first: Ints  # (Q,) first item of each queue
    size: Ints  # (Q,) number of items of each queue
    offsets: Ints  # (p + 1,) device d has the queues offsets[d] to offsets[d + 1] - 1
    reserve: Ints  # (Q,) memory that an item of each queue must leave free
    weight: Ints  # (Q,) the queue of the W of each queue of B's that may be fused; else -1
    fuse: Ints  # (Q,) row of the weights that decide whether a B is fused, -1 where that saves no time
    saved: Ints  # (Q,) ticks that a fused backward saves
    work: Ints  # (p,) least ticks that the items of each device take together, one at a time
    done: Ints  # (Q,) number of items of each queue that have run
    credit: Ints  # (C,) credits given and not yet taken
    memory: Ints  # (p,) memory that each device holds
    free: Ints  # (p,) when the last item of each device ended
    idle: Ints  # (p,) ticks that each device has idled so far
    place: Ints  # (p,) next position of each device
    wake: Ints  # (p,) when each device next looks for an item to run
    sent: Ints  # (N,) when each item's message leaves, -1 before the item has run
    left: Ints  # (L,) when the last message on each link left
    item: Ints  # (N,) item at each position: the words that the rule gives
    joined: Ints  # (N,) how it runs with the next one: `SINGLE` or `FUSED`


def dispatch_state_for(queues: Queues, graph: EventGraph) -> DispatchState:
    """Return a state for runs on the instance of these queues, before the first run."""

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int64)

    p, items = queues.instance.devices, len(graph.arrays.queue)
    count = np.array([queue.count for queue in queues.queues])
    home = np.array([queue.device for queue in queues.queues])
    weight, fuse, saved = _fusing(queues, graph)
    work = np.array([queue.count * queue.duration for queue in queues.queues]) - saved * count
    return DispatchState(
        first=np.cumsum(count) - count,
        size=count,
        offsets=np.searchsorted(home, np.arange(p + 1)),
        reserve=_reserves(queues),
        weight=weight,
        fuse=fuse,
        saved=saved,
        work=np.bincount(home, work, p).astype(np.int64),
        done=ints(len(count)),
        credit=ints(graph.arrays.credits),
        **{name: ints(p) for name in ("memory", "free", "idle", "place", "wake")},
        sent=ints(items),
        left=ints(graph.arrays.links),
        item=ints(items),
        joined=ints(items),
    )


def _fusing(queues: Queues, graph: EventGraph) -> tuple[Ints, Ints, Ints]:
    """Return the arrays `weight`, `fuse` and `saved`."""
    weight, fuse, saved = np.full((3, len(queues.queues)), -1)
    saved[:] = 0
    widest = max(len(queues.on(device)) for device in range(queues.instance.devices))
    for device in range(queues.instance.devices):
        mine = [q for q in queues.on(device) if queues.queues[q].kind is OpKind.B]
        for k, q in enumerate(mine):
            ticks = int(graph.arrays.queues[q]["fused"])
            w = queues.index.get((OpKind.W, *queues.queues[q].members[0]), -1)
            apart = queues.queues[q].duration + (queues.queues[w].duration if w >= 0 else 0)
            if 0 < ticks < apart:
                weight[q], fuse[q], saved[q] = w, widest + k, apart - ticks
    return weight, fuse, saved


def _reserves(queues: Queues) -> Ints:
    """Return the memory that an item of each queue must leave free, shape (Q,).

    An F leaves room for one F at each later stage of its route on the same device, those that its own
    microbatch still needs. So the oldest unfinished microbatch never waits for memory that younger ones hold.
    Every other item leaves none.
    """
    reserve = np.zeros(len(queues.queues), np.int64)
    for q, queue in enumerate(queues.queues):
        if queue.kind is OpKind.F:
            ((route, stage),) = queue.members
            later = (queues.queues[r] for r in queues.on(queue.device) if queues.queues[r].kind is OpKind.F)
            reserve[q] = sum(f.delta for f in later if f.members[0][0] == route and f.members[0][1] > stage)
    return reserve
