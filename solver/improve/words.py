"""Words and their times as arrays for the compiled search, and conversions from and to an order.

`queues` defines items and words, and `event_graph` positions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Bools, Ints

from ..queues import Queues, flat_words_of, order_of_flat
from .event_graph import EventGraph


class Words(NamedTuple):
    """The words of all devices, the earliest ends of all items, and what undoing a move needs.

    There are N items, p devices and C kinds of credit. Times are in ticks.
    """

    item: Ints  # (N,) item at each position
    place: Ints  # (N,) position of each item
    begin: Ints  # (p,) tick before which each device does not begin
    end: Ints  # (N,) earliest end of each item
    sent: Ints  # (N,) when each item's message leaves; `end` itself if no message ever waits
    shift: Ints  # (N,) items at the positions that a move changes, as they were before it
    undo: Ints  # (N,) items whose times the move has changed, in the sequence of the changes
    end_before: Ints  # (N,) their ends before the move
    sent_before: Ints  # (N,) their `sent` before the move
    dirty: Bools  # (N,) whether the times of each item's source have changed since its own were computed
    marked: Ints  # (N,) items that were made dirty
    head: Ints  # (p,) next position to look at on each device
    wanted: Ints  # (p,) last position on each device whose item has to be computed for another device
    pending: Ints  # (p,) number of dirty items on each device
    changed: Bools  # (p,) whether changed times before `head` may change those of the item at `head`
    credit: Ints  # (C,) credits given and not yet taken, while a word is checked


def words_for(graph: EventGraph) -> Words:
    """Return empty arrays for the words of an instance, which `load` fills."""
    items, devices = len(graph.queue), len(graph.limit)

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    end, end_before = ints(items), ints(items)
    sent, sent_before = (ints(items), ints(items)) if graph.links else (end, end_before)
    return Words(
        *(ints(items), ints(items), ints(devices), end, sent, ints(items)),
        *(ints(items), end_before, sent_before, np.zeros(items, np.bool_), ints(items)),
        *(ints(devices), ints(devices), ints(devices), np.zeros(devices, np.bool_), ints(graph.credits)),
    )


def items_of(queues: Queues, order: Order) -> Ints:
    """Return the item at each position of an order, with its microbatches relabelled first in, first out."""
    word, _ = flat_words_of(queues, order)
    # The items are numbered queue after queue, and within a queue in the sequence in which they run.
    item = np.empty_like(word)
    item[np.argsort(word, kind="stable")] = np.arange(len(word))
    return item


def order_of_items(queues: Queues, graph: EventGraph, item: Ints) -> Order:
    """Return the order that words stand for, given the item at each position."""
    return order_of_flat(queues, graph.queue[item], graph.offsets)
