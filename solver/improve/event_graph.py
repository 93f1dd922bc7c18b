"""An instance as the arrays of its event graph, which the compiled searches read.

`queues` defines queues, items and words. Here a word is the sequence in which a device runs its items. The
words of all devices lie one behind the other in one array, and a *position* is a place in that array.

The events are the ends of the items. An arc leads from an event to another that cannot come before it, and
its weight is the least number of ticks between the two. The arcs between devices, where an item waits for a
message, are the same for all words of the instance, and are in these arrays. A word adds an arc from each
item to the next item of its device. With the arcs of all words the graph gives a schedule: every item ends at
the length of the longest path to its event. An item that waits for an operation of its own device needs no
further arc, because it follows that operation in the word. The messages of a device leave in the sequence of
its word.

Precedences within a device are kept by counting *credits*. An item of one queue gives a credit that an item
of another queue takes, and an item that takes a credit cannot run before one is there. W's take credits that
B's give, and the B of the last stage takes credits that the F of this stage gives. Where two consecutive
stages are on one device, the F of the later stage takes credits of the F of the earlier stage, and the B of
the earlier stage takes credits of the B of the later stage.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.instance import Instance, Objective
from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints

from ..queues import Queues

NO_LIMIT = 2**62
_NONE = -1


class EventGraph(NamedTuple):
    """The part of the event graph that all words of an instance share, with the limits that words obey.

    There are Q queues, N items, p devices and C kinds of credit.
    """

    duration: Ints  # (Q,) ticks of each item of a queue
    delta: Ints  # (Q,) memory that each item of a queue adds
    takes: Ints  # (Q,) kind of credit that each item of a queue takes, -1 for none
    gives: Ints  # (Q, 2) kinds of credit that each item of a queue gives, -1 for none
    credits: int  # C, the number of kinds of credit
    limit: Ints  # (p,) memory limit of each device, `NO_LIMIT` for none
    offsets: Ints  # (p + 1,) device d has the positions offsets[d] to offsets[d + 1] - 1
    block: int  # positions per range that moves stay in: an iteration if there are flushes, else a word
    lowest: Ints  # (N,) of each position, the first position to which its item may move
    highest: Ints  # (N,) of each position, the last position to which its item may move
    spans: bool  # whether the cost is the largest span of a device, and not the makespan
    queue: Ints  # (N,) queue of each item
    home: Ints  # (N,) device of each item
    source: Ints  # (N,) item of another device that an item waits for, -1 for none
    target: Ints  # (N,) item of another device that waits for an item, -1 for none
    lag: Ints  # (N,) ticks from when the source's message leaves until the item may start
    link: Ints  # (N,) link on which an item's message may have to wait, -1 for none
    links: int  # number of links on which a message may have to wait
    occupancy: int  # least ticks from one message on such a link to the next one on it


def event_graph_of(queues: Queues) -> EventGraph:
    """Return the event graph of the instance of these queues."""
    instance = queues.instance
    count = np.array([queue.count for queue in queues.queues])
    first = np.cumsum([0, *count])
    device = np.array([queue.device for queue in queues.queues])
    offsets = np.cumsum([0, *np.bincount(device, count, instance.devices).astype(np.int64)])
    takes, gives, credits = _credits(queues)
    source, target, lag = _messages(queues, first)
    block = int(offsets[1]) // (instance.iterations if instance.flush else 1)
    lowest = _first_of_block(offsets, block)
    queue = np.repeat(np.arange(len(count)), count)
    return EventGraph(
        duration=np.array([queue.duration for queue in queues.queues]),
        delta=np.array([queue.delta for queue in queues.queues]),
        takes=takes,
        gives=gives,
        credits=credits,
        limit=_limits(instance),
        offsets=offsets,
        block=block,
        lowest=lowest,
        highest=lowest + block - 1,
        spans=instance.objective is Objective.DEVICE_SPAN,
        queue=queue,
        home=device[queue],
        source=source,
        target=target,
        lag=lag,
        link=_links(queues, first),
        links=len(queues.links()),
        occupancy=instance.costs.link_occupancy,
    )


def with_fixed(graph: EventGraph, first: Ints, end: Ints) -> EventGraph:
    """Return an event graph in which a range of each device's word stays as it is.

    No item may move into the range, out of it, or from one side of it to the other.

    Parameters
    ----------
    graph
        The event graph of an instance without flushes.
    first, end
        The first position of the range and the one behind its last, within each device's word, shape (p,).
    """
    lowest, highest = graph.lowest.copy(), graph.highest.copy()
    for device in range(len(first)):
        begin, last = graph.offsets[device : device + 2]
        left, right = begin + first[device], begin + end[device]
        highest[begin:left] = left - 1
        lowest[left:right] = highest[left:right] = np.arange(left, right)
        lowest[right:last] = right
    return graph._replace(lowest=lowest, highest=highest)


def mirrored(graph: EventGraph) -> EventGraph:
    """Return the event graph of the same words read backwards, which serves only to compute times.

    Position i becomes N - 1 - i and device d becomes p - 1 - d; the items keep their numbers. The result has
    no links, and its memory limits, credits and ranges for moves are not mirrored.
    """
    late = graph.target
    return graph._replace(
        offsets=graph.offsets[-1] - graph.offsets[::-1],
        home=len(graph.limit) - 1 - graph.home,
        source=late,
        target=graph.source,
        lag=np.where(late >= 0, graph.lag[late], 0),
        links=0,
    )


def _credits(queues: Queues) -> tuple[Ints, Ints, int]:
    """Return the kind of credit that each queue takes, the kinds that it gives, and the number of kinds."""
    size = len(queues.queues)
    takes, gives, kinds = np.full(size, _NONE), np.full((size, 2), _NONE), 0
    for giver, taker in _precedences_at_home(queues):
        if takes[taker] == _NONE:
            takes[taker], kinds = kinds, kinds + 1
        gives[giver, int(gives[giver, 0] != _NONE)] = takes[taker]
    return takes, gives, kinds


def _precedences_at_home(queues: Queues) -> list[tuple[int, int]]:
    """Return all pairs of queues of the same device in which the second queue waits for the first."""
    every = queues.queues
    direct = [
        (q, r)
        for q, r, _ in queues.precedences()
        if every[q].device == every[r].device and every[r].kind is not OpKind.W
    ]
    weights = [w for w, queue in enumerate(every) if queue.kind is OpKind.W]
    return direct + [(b, w) for w in weights for b in queues.backwards_of(w)]


def _messages(queues: Queues, first: Ints) -> tuple[Ints, Ints, Ints]:
    """Return for each item its source and its target on other devices, and the ticks of lag from its source.

    The source of an item is the item whose message it waits for; its target is the item that waits for the
    message of the item itself.
    """
    source, target, lag = (np.full(first[-1], value) for value in (_NONE, _NONE, 0))
    for q, r, ticks in queues.precedences():
        if queues.queues[q].device != queues.queues[r].device:
            senders, receivers = np.arange(first[q], first[q + 1]), np.arange(first[r], first[r + 1])
            source[receivers], target[senders], lag[receivers] = senders, receivers, ticks
    return source, target, lag


def _links(queues: Queues, first: Ints) -> Ints:
    """Return for each item the link on which its message may have to wait, -1 for none."""
    link = np.full(first[-1], _NONE)
    for number, sending in enumerate(queues.links()):
        for q, _, _ in sending:
            link[first[q] : first[q + 1]] = number
    return link


def _first_of_block(offsets: Ints, block: int) -> Ints:
    """Return for each position the first position of its block, which has `block` positions."""
    begin = np.repeat(offsets[:-1], np.diff(offsets))
    return begin + (np.arange(offsets[-1]) - begin) // block * block


def _limits(instance: Instance) -> Ints:
    limits = (instance.memory_limit(device) for device in range(instance.devices))
    return np.array([NO_LIMIT if limit is None else limit for limit in limits])
