"""Words and their longest paths, as arrays for the compiled search, and the way from and to an order.

See `event_graph` for what an item, a word and a position is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Bools, Floats, Ints

from ..queues import Queues, order_of, words_of
from .event_graph import EventGraph


class Words(NamedTuple):
    """The words of all devices, the longest paths to all ends, and what undoing a move takes.

    N items, p devices, F frames, C kinds of credit.
    """

    item: Ints  # (N,) item at each position
    place: Ints  # (N,) position of each item
    path: Ints  # (N, F) longest path from the first start of each frame to the item's end
    sent: Ints  # (N, F) to when the item's message leaves: `path` itself where no message ever waits
    end: Ints  # (N,) the item's earliest end: the largest of `path`
    shift: Ints  # (N,) items of the moved range as they were
    undo: Ints  # (N,) items whose paths have changed
    path_before: Ints  # (N, F) their paths
    sent_before: Ints  # (N, F) as for `sent`
    end_before: Ints  # (N,) their ends
    dirty: Bools  # (N,) items whose source has changed
    marked: Ints  # (N,) items that were made dirty
    head: Ints  # (p,) next position to look at
    wanted: Ints  # (p,) last position that some item waits for
    pending: Ints  # (p,) number of dirty items
    changed: Bools  # (p,) whether the item before `head` has changed
    credit: Ints  # (C,) of the word that is looked at
    walk: Floats  # (p + 1, p) heaviest walks of so many edges that end at each device


def words_for(graph: EventGraph) -> Words:
    """Return room for words; `load` fills it."""
    items, devices = len(graph.queue), len(graph.limit)

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    path, before = (ints(items, graph.frames) for _ in range(2))
    sent, sent_before = (ints(items, graph.frames) if graph.links else old for old in (path, before))
    return Words(
        *(ints(items), ints(items), path, sent, ints(items), ints(items), ints(items)),
        *(before, sent_before, ints(items), np.zeros(items, np.bool_), ints(items)),
        *(ints(devices), ints(devices), ints(devices), np.zeros(devices, np.bool_)),
        *(ints(graph.credits), np.zeros((devices + 1, devices))),
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


def order_of_items(queues: Queues, graph: EventGraph, item: Ints) -> Order:
    """Return the order that the words stand for."""
    word, offsets = graph.queue[item].tolist(), graph.offsets
    return order_of(queues, [word[offsets[d] : offsets[d + 1]] for d in range(len(offsets) - 1)])
