"""An instance and a schedule as arrays for the compiled search.

Items are the elements of first-in-first-out queues, numbered queue after queue. A device's word is a
sequence of its items. Only where an item waits for another device is there an arc between items: what
waits for an operation of its own device follows it in the word, and that is enough. The word is also the
sequence in which a device's messages leave.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tightpipe.core.instance import Objective
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints

from ..queues import Queues, order_of, words_of

NO_LIMIT = 2**62


class Network(NamedTuple):
    """What does not change; Q queues, N items, p devices, F frames, C kinds of credit.

    A frame is what a span is measured over: each device for `device_span`, all of them together for
    `makespan`. A queue takes one credit per element, which an element of another queue of its device
    gave: W's take theirs from B's, the turn of a V takes them from the stage before.
    """

    duration: Ints  # (Q,)
    delta: Ints  # (Q,) memory
    takes: Ints  # (Q,) kind of credit, -1 for none
    gives: Ints  # (Q, 2) kinds of credit, -1 for none
    credits: int
    limit: Ints  # (p,) memory, `NO_LIMIT` for none
    offsets: Ints  # (p + 1,) device d runs positions offsets[d] to offsets[d + 1] - 1
    block: int  # consecutive positions of a device that no item leaves: an iteration, where one is flushed
    lowest: Ints  # (N,) of each position: the first to which its item may move
    highest: Ints  # (N,) the last
    frame: Ints  # (p,)
    frames: int
    queue: Ints  # (N,) of each item
    home: Ints  # (N,) device of each item
    source: Ints  # (N,) item of another device that it waits for, -1 for none
    target: Ints  # (N,) item of another device that waits for it, -1 for none
    lag: Ints  # (N,) ticks from when the source's message leaves
    link: Ints  # (N,) link on which an item's message may have to wait, -1 for none
    links: int  # how many of them there are
    occupancy: int  # ticks from one message of such a link to the next


class Words(NamedTuple):
    """The words, the longest paths to all ends, and what undoing a move takes."""

    item: Ints  # (N,) item at each position
    place: Ints  # (N,) position of each item
    path: Ints  # (N, F) longest path from the first start of each frame to the item's end
    sent: Ints  # (N, F) to when the item's message leaves: `path` itself where no message ever waits
    end: Ints  # (N,) the item's earliest end: the largest of `path`
    shift: Ints  # (N,) items of the moved range as they were
    undo: Ints  # (N,) items whose paths have changed
    path_before: Ints  # (N, F) their paths
    sent_before: Ints  # (N, F) as for `sent`
    end_before: Ints  # (N,)
    dirty: NDArray[np.bool_]  # (N,) items whose source has changed
    marked: Ints  # (N,) items that were made dirty
    head: Ints  # (p,) next position to look at
    wanted: Ints  # (p,) last position that some item waits for
    pending: Ints  # (p,) number of dirty items
    changed: NDArray[np.bool_]  # (p,) whether the item before `head` has changed
    credit: Ints  # (C,) of the word that is looked at
    walk: NDArray[np.float64]  # (p + 1, p) heaviest walks of so many edges that end at each device


def network_of(queues: Queues) -> Network:
    """Return the arrays of an instance."""
    instance = queues.instance
    count = np.array([queue.count for queue in queues.queues])
    first = np.cumsum([0, *count])
    device = np.array([queue.device for queue in queues.queues])
    source, target, lag = (np.full(first[-1], value) for value in (-1, -1, 0))
    takes, gives, credits = np.full(len(count), -1), np.full((len(count), 2), -1), 0
    givers = [(q, r) for q, r, _ in queues.precedences() if device[q] == device[r]]
    givers = [(q, r) for q, r in givers if queues.queues[r].kind is not OpKind.W]
    for w in range(len(count)):
        if queues.queues[w].kind is OpKind.W:
            givers += [(b, w) for b in queues.backwards_of(w)]
    for q, r in givers:
        if takes[r] < 0:
            takes[r], credits = credits, credits + 1
        gives[q, int(gives[q, 0] >= 0)] = takes[r]
    for q, r, ticks in queues.precedences():
        if device[q] != device[r]:
            senders, receivers = np.arange(first[q], first[q + 1]), np.arange(first[r], first[r + 1])
            source[receivers], target[senders], lag[receivers] = senders, receivers, ticks
    links, link = queues.links(), np.full(first[-1], -1)
    for number, sending in enumerate(links):
        for q, _, _ in sending:
            link[first[q] : first[q + 1]] = number
    per_device = np.bincount(device, count, instance.devices).astype(np.int64)
    makespan = instance.objective is Objective.MAKESPAN
    limits = [instance.memory_limit(d) for d in range(instance.devices)]
    queue = np.repeat(np.arange(len(count)), count)
    offsets = np.cumsum([0, *per_device])
    block = int(per_device[0]) // (instance.iterations if instance.flush else 1)
    begin = np.repeat(offsets[:-1], per_device)
    lowest = begin + (np.arange(len(queue)) - begin) // block * block
    return Network(
        duration=np.array([queue.duration for queue in queues.queues]),
        delta=np.array([queue.delta for queue in queues.queues]),
        takes=takes,
        gives=gives,
        credits=credits,
        limit=np.array([NO_LIMIT if limit is None else limit for limit in limits]),
        offsets=offsets,
        block=block,
        lowest=lowest,
        highest=lowest + block - 1,
        frame=np.zeros(instance.devices, np.int64) if makespan else np.arange(instance.devices),
        frames=1 if makespan else instance.devices,
        queue=queue,
        home=device[queue],
        source=source,
        target=target,
        lag=lag,
        link=link,
        links=len(links),
        occupancy=instance.costs.link_occupancy,
    )


def with_fixed(network: Network, first: Ints, end: Ints) -> Network:
    """Return the arrays of the problem in which a range of each device's word stays as it is.

    Parameters
    ----------
    network
        The problem, without flushes.
    first, end
        Positions within each device's word, shape (p,); no item moves from one side to the other.
    """
    lowest, highest = network.lowest.copy(), network.highest.copy()
    for device in range(len(first)):
        begin, last = network.offsets[device : device + 2]
        left, right = begin + first[device], begin + end[device]
        highest[begin:left] = left - 1
        lowest[left:right] = highest[left:right] = np.arange(left, right)
        lowest[right:last] = right
    return network._replace(lowest=lowest, highest=highest)


def words_for(network: Network) -> Words:
    """Return room for words; `load` fills it."""
    items, devices = len(network.queue), len(network.limit)

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    path, before = (ints(items, network.frames) for _ in range(2))
    sent, sent_before = (ints(items, network.frames) if network.links else old for old in (path, before))
    return Words(
        *(ints(items), ints(items), path, sent, ints(items), ints(items), ints(items)),
        *(before, sent_before, ints(items), np.zeros(items, np.bool_), ints(items)),
        *(ints(devices), ints(devices), ints(devices), np.zeros(devices, np.bool_)),
        *(ints(network.credits), np.zeros((devices + 1, devices))),
    )


def items_of(queues: Queues, order: Order) -> Ints:
    """Return the item at each position; microbatches count as first-in-first-out."""
    first = np.cumsum([0, *(queue.count for queue in queues.queues)])
    done = np.zeros(len(queues.queues), np.int64)
    found = []
    for word in words_of(queues, order):
        for q in word:
            found.append(first[q] + done[q])
            done[q] += 1
    return np.array(found)


def order_of_items(queues: Queues, network: Network, item: Ints) -> Order:
    """Return the order that the words stand for."""
    word, offsets = network.queue[item].tolist(), network.offsets
    return order_of(queues, [word[offsets[d] : offsets[d + 1]] for d in range(len(offsets) - 1)])
