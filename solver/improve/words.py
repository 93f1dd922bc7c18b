"""Words and their longest paths as arrays for the compiled search, and conversions from and to an order.

`queues` defines items and words, and `event_graph` positions and paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Bools, Floats, Ints

from ..queues import Queues, order_of, words_of
from .event_graph import EventGraph


class Words(NamedTuple):
    """The words of all devices, the longest paths to the ends of all items, and what undoing a move needs.

    There are N items, p devices, F frames and C kinds of credit.
    """

    item: Ints  # (N,) item at each position
    place: Ints  # (N,) position of each item
    path: Ints  # (N, F) longest path from the first start of each frame to each item's end, in ticks
    sent: Ints  # (N, F) the same to when the item's message leaves; `path` itself if no message ever waits
    end: Ints  # (N,) earliest end of each item, which is the largest of its `path`
    shift: Ints  # (N,) items at the positions that a move changes, as they were before it
    undo: Ints  # (N,) items whose paths the move has changed, in the sequence of the changes
    path_before: Ints  # (N, F) the paths of these items before the move
    sent_before: Ints  # (N, F) their `sent` before the move
    end_before: Ints  # (N,) their ends before the move
    dirty: Bools  # (N,) whether each item's source has changed since the item's paths were computed
    marked: Ints  # (N,) items that were made dirty
    head: Ints  # (p,) next position to look at on each device
    wanted: Ints  # (p,) last position on each device that an item of another device waits for
    pending: Ints  # (p,) number of dirty items on each device
    changed: Bools  # (p,) whether the paths of the item before `head` have changed
    credit: Ints  # (C,) credits given and not yet taken, while a word is checked
    walk: Floats  # (p + 1, p) heaviest walk of k edges that ends at each device, for k from 0 to p


def words_for(graph: EventGraph) -> Words:
    """Return empty arrays for the words of an instance, which `load` fills."""
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
    """Return the item at each position in an order, whose microbatches are relabelled first in, first out."""
    first = np.cumsum([0, *(queue.count for queue in queues.queues)])
    done = np.zeros(len(queues.queues), np.int64)
    found = []
    for word in words_of(queues, order):
        for q in word:
            found.append(first[q] + done[q])
            done[q] += 1
    return np.array(found)


def order_of_items(queues: Queues, graph: EventGraph, item: Ints) -> Order:
    """Return the order that words stand for, given the item at each position."""
    word, offsets = graph.queue[item].tolist(), graph.offsets
    return order_of(queues, [word[offsets[d] : offsets[d + 1]] for d in range(len(offsets) - 1)])
