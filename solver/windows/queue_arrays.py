"""The queues of an instance as arrays, for the compiled rules."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tightpipe.core.instance import Instance, Objective
from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Bools, Ints

from ..queues import Queues, queues_of


class QueueArrays(NamedTuple):
    """The queues of an instance under one horizon, as arrays.

    Q is the number of queues, p the number of devices and N the number of items. M is the largest number of
    queues on one device, and E the largest number of entries of one queue, counted for `followers` and for
    `leaders` separately. A queue has two numbers: one among all queues, and one among the queues of its
    device, from 0. The second one is meant by "the device's k-th queue".
    """

    first: Ints  # (Q + 1,) queue q has the items first[q] to first[q + 1] - 1
    queue: Ints  # (N,) queue of each item
    duration: Ints  # (Q,) ticks of each item of a queue
    delta: Ints  # (Q,) memory that each item of a queue adds
    device: Ints  # (Q,) device of each queue
    local: Ints  # (Q,) number of each queue among those of its device
    on: Ints  # (p, M) the k-th queue of each device, -1 where there are fewer
    held: Ints  # (p,) number of queues on each device
    followers: Ints  # (Q, E, 2) at [q]: queues that wait for q, least ticks from start to start; then -1, 0
    sources: Ints  # (Q, M) for each pool, the B queues whose W's it holds; all other entries are -1
    limit: Ints  # (p,) memory limit of each device, -1 where there is none
    leaders: Ints  # (Q, E, 2) at [q]: queues that q waits for, least ticks from start to start; then -1, 0
    precedes: Bools  # (Q, Q) at [q, r]: the k-th item of q precedes the k-th of r, perhaps through others
    link: Ints  # (Q,) link on which the queue's messages may have to wait, -1 for none
    receiver: Ints  # (Q,) queue that such a message goes to
    travel: Ints  # (Q,) ticks from when such a message leaves until it arrives
    occupancy: int  # least ticks from one message on such a link to the next
    opening: Ints  # (p,) item that surely runs first on each device; -1 if unknown, or if frames are shared
    idle: Ints  # (p,) ticks that each device may idle between the start and the end of its frame
    anchor: int  # the device whose frame starts at time 0; -1 if all devices share one frame


def arrays_of(queues: Queues, horizon: int) -> QueueArrays:
    """Return the queues as arrays; the horizon, in ticks, says how long each device may idle."""
    arrays = _without_horizon(queues.instance)
    return arrays._replace(idle=horizon + arrays.idle)


@lru_cache(maxsize=16)  # a search asks for the same instance under one horizon after another
def _without_horizon(instance: Instance) -> QueueArrays:
    """Return the arrays with `idle` set to minus the work of each device; `arrays_of` adds the horizon.

    All callers share these arrays. They can, because the compiled rules only read them.
    """
    queues = queues_of(instance)
    on = [queues.on(d) for d in range(instance.devices)]
    width = max(map(len, on))
    count = [queue.count for queue in queues.queues]
    first = np.cumsum([0, *count])
    device = [queue.device for queue in queues.queues]
    sources = [_sources(queues, q) for q in range(len(queues.queues))]
    followers: list[list[tuple[int, int]]] = [[] for _ in queues.queues]
    leaders: list[list[tuple[int, int]]] = [[] for _ in queues.queues]
    for q, r, lag in queues.precedences():
        followers[q].append((r, queues.queues[q].duration + lag))
        leaders[r].append((q, queues.queues[q].duration + lag))
    link, receiver, travel = (np.full(len(count), value) for value in (-1, -1, 0))
    for number, senders in enumerate(queues.links()):
        for q, r, lag in senders:
            link[q], receiver[q], travel[q] = number, r, lag
    limits = [instance.memory_limit(d) for d in range(instance.devices)]
    floating = instance.objective is Objective.DEVICE_SPAN
    return QueueArrays(
        first=first,
        queue=np.repeat(np.arange(len(count)), count),
        duration=np.array([queue.duration for queue in queues.queues]),
        delta=np.array([queue.delta for queue in queues.queues]),
        device=np.array(device),
        local=np.array([on[d].index(q) for q, d in enumerate(device)]),
        on=_padded(on, width),
        held=np.array([len(row) for row in on]),
        followers=_padded_pairs(followers),
        sources=_padded(sources, width),
        limit=np.array([-1 if limit is None else limit for limit in limits]),
        leaders=_padded_pairs(leaders),
        precedes=_closure(followers),
        link=link,
        receiver=receiver,
        travel=travel,
        occupancy=instance.costs.link_occupancy,
        opening=np.array([_opening(queues, first, d) if floating else -1 for d in range(instance.devices)]),
        idle=np.array([-instance.work(d) for d in range(instance.devices)]),
        anchor=instance.placement.routes[0][0] if floating else -1,
    )


def _closure(followers: list[list[tuple[int, int]]]) -> Bools:
    """Return the transitive closure of "the k-th item of q precedes the k-th item of r", shape (Q, Q)."""
    reach = np.zeros((len(followers), len(followers)), np.bool_)
    for q, row in enumerate(followers):
        reach[q, [r for r, _ in row]] = True
    for via in range(len(followers)):
        reach |= reach[:, via, None] & reach[via]
    return reach


def _sources(queues: Queues, q: int) -> list[int]:
    """Return the B queues that feed the pool `q`, none if `q` is no pool.

    A W queue of one stage lists its B queue among its leaders instead.
    """
    queue = queues.queues[q]
    return queues.backwards_of(q) if queue.kind is OpKind.W and len(queue.members) > 1 else []


def _opening(queues: Queues, first: Ints, device: int) -> int:
    """Return the item that is the first F of the device's lowest stage, -1 if the device lies on two routes.

    On a single route, everything else on the device waits for that F.
    """
    held = [q for q in queues.on(device) if queues.queues[q].kind is OpKind.F]
    if len({queues.queues[q].members[0][0] for q in held}) > 1:
        return -1
    lowest = min(held, key=lambda q: queues.queues[q].members[0][1])
    return int(first[lowest])


def _padded(rows: list[list[int]], width: int) -> Ints:
    return np.array([row + [-1] * (width - len(row)) for row in rows])


def _padded_pairs(rows: list[list[tuple[int, int]]]) -> Ints:
    width = max(1, *map(len, rows))
    return np.array([row + [(-1, 0)] * (width - len(row)) for row in rows])
