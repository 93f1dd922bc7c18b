"""Words and their times as arrays for the compiled search, and conversions from and to an order.

`queues` defines items and words, and `event_graph` positions.

Joint operations are items at neighbouring positions that run together. A fused backward is a B and behind it
a W; a pair is an F and behind it a fused backward. The first item of a joint operation takes its whole time,
and the others take none. So the later items end when the joint operation ends, which is what all that waits
for them has to know, and the memory that a device holds is the same as one after the other. Only one rule
needs more: an F in a pair also waits for what the B behind it waits for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Bools, Ints

from ..queues import Queues, Tokens, order_of_tokens, tokens_of
from .event_graph import EventGraph


class Words(NamedTuple):
    """The words of all devices, the earliest ends of all items, and what undoing a move needs.

    There are N items, p devices and C kinds of credit. Times are in ticks.
    """

    item: Ints  # (N,) item at each position
    joined: Ints  # (N,) how the item at each position runs with the next one: `SINGLE`, `FUSED` or `PAIRED`
    place: Ints  # (N,) position of each item
    ticks: Ints  # (N,) ticks of each item: of the first one of a joint operation those of all, of others 0
    begin: Ints  # (p,) tick before which each device does not begin
    end: Ints  # (N,) earliest end of each item
    sent: Ints  # (N,) when each item's message leaves; `end` itself if no message ever waits
    shift: Ints  # (N,) items at the positions that a move changes, as they were before it
    shift_joined: Ints  # (N,) `joined` at these positions before the move
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


def words_for(graph: EventGraph, mirror_of: Words | None = None) -> Words:
    """Return empty arrays for the words of an instance, which `load` fills.

    The mirror image of other words shares their `ticks`, which belong to items and not to positions.
    """
    items, devices = len(graph.arrays.queue), len(graph.arrays.devices)

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int64)

    end, end_before = ints(items), ints(items)
    sent, sent_before = (ints(items), ints(items)) if graph.arrays.links else (end, end_before)
    return Words(
        item=ints(items),
        joined=ints(items),
        place=ints(items),
        ticks=ints(items) if mirror_of is None else mirror_of.ticks,
        begin=ints(devices),
        end=end,
        sent=sent,
        shift=ints(items),
        shift_joined=ints(items),
        undo=ints(items),
        end_before=end_before,
        sent_before=sent_before,
        dirty=np.zeros(items, np.bool_),
        marked=ints(items),
        head=ints(devices),
        wanted=ints(devices),
        pending=ints(devices),
        changed=np.zeros(devices, np.bool_),
        credit=ints(graph.arrays.credits),
    )


class Positions(NamedTuple):
    """Words without times: what stands at each position, shape (N,) each."""

    item: Ints
    joined: Ints


def positions_of(queues: Queues, order: Order) -> Positions:
    """Return the words of an order, with its microbatches relabelled first in, first out."""
    word, joined, _ = tokens_of(queues, order)
    # The items are numbered queue after queue, and within a queue in the sequence in which they run.
    item = np.empty_like(word)
    item[np.argsort(word, kind="stable")] = np.arange(len(word))
    return Positions(item, joined)


def order_of_positions(queues: Queues, graph: EventGraph, found: Positions) -> Order:
    """Return the order that words stand for."""
    return order_of_tokens(queues, Tokens(graph.arrays.queue[found.item], found.joined, graph.offsets))
