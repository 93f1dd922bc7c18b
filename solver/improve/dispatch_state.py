"""What a dispatching rule reads and writes while it runs, as arrays for the compiled search."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints

from ..queues import Queues
from .event_graph import EventGraph


class DispatchState(NamedTuple):
    """The queues that a rule chooses from, and how far a run has come.

    Q queues, N items, p devices, C kinds of credit, L links; see `event_graph` for these words. The first
    five never change.
    """

    first: Ints  # (Q,) first item of each queue
    size: Ints  # (Q,) number of items
    offsets: Ints  # (p + 1,) device d has queues offsets[d] to offsets[d + 1] - 1
    reserve: Ints  # (Q,) memory that the queue leaves to others
    work: Ints  # (p,) ticks of all items
    done: Ints  # (Q,) items that have run
    credit: Ints  # (C,) given and not yet taken
    memory: Ints  # (p,) held
    free: Ints  # (p,) when the last item ended
    idle: Ints  # (p,) ticks
    place: Ints  # (p,) next position
    wake: Ints  # (p,) when to look for an item
    sent: Ints  # (N,) when each item's message leaves, -1 before it has run
    left: Ints  # (L,) when the last message of each link left
    item: Ints  # (N,) item at each position: the words that the rule gives


def dispatch_state_for(queues: Queues, graph: EventGraph) -> DispatchState:
    """Return the arrays of an instance, and room for runs."""

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int64)

    p, items = queues.instance.devices, len(graph.queue)
    count = np.array([queue.count for queue in queues.queues])
    home = np.array([queue.device for queue in queues.queues])
    work = np.array([queue.count * queue.duration for queue in queues.queues])
    return DispatchState(
        first=np.cumsum(count) - count,
        size=count,
        offsets=np.searchsorted(home, np.arange(p + 1)),
        reserve=_reserves(queues),
        work=np.bincount(home, work, p).astype(np.int64),
        done=ints(len(count)),
        credit=ints(graph.credits),
        **{name: ints(p) for name in ("memory", "free", "idle", "place", "wake")},
        sent=ints(items),
        left=ints(graph.links),
        item=ints(items),
    )


def _reserves(queues: Queues) -> Ints:
    """Return what an F leaves to its route's later F's on the device.

    An F that has come so far always finds room then: the oldest microbatch never waits for memory that
    younger ones hold.
    """
    reserve = np.zeros(len(queues.queues), np.int64)
    for q, queue in enumerate(queues.queues):
        if queue.kind is OpKind.F:
            ((route, stage),) = queue.members
            later = (queues.queues[r] for r in queues.on(queue.device) if queues.queues[r].kind is OpKind.F)
            reserve[q] = sum(f.delta for f in later if f.members[0][0] == route and f.members[0][1] > stage)
    return reserve
