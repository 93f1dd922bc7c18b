"""A box of windows: lower and upper values in one flat array, with a trail to undo a supposition.

Layout of the N items, M slots, p devices: the least start of each item (N), the number of elements of
each slot that surely precede it (N M), the least start of each device's frame (p); then the largest
start, the first element of each slot that surely follows it, and the largest start of each frame in the
same sequence. The first half only rises, the second only falls, so two boxes that hold meet in their
maxima and minima.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled

from .queue_arrays import Net

ON, SIZE, STEPS = 0, 1, 2  # of Box.state: whether to record, entries of the trail, items worked on
HEAD, COUNT = 3, 4  # of Box.state: the agenda is a ring


class Box(NamedTuple):
    """The windows and what propagation needs besides; all arrays are changed in place."""

    value: Ints  # (2 (N + N M + p),)
    trail: Ints  # (entries, 2) position and value before
    agenda: Ints  # (N,) items whose rules have to be applied
    waiting: NDArray[np.bool_]  # (N,) whether an item is on the agenda
    low: Ints  # (M,) room for one item's orders
    high: Ints  # (M,)
    place: Ints  # (M,)
    state: Ints  # (5,)


def open_box(net: Net, horizon: int) -> Box:
    """Return the box in which only the sequence within each queue and of one microbatch is decided.

    Microbatch 0 of route 0 starts and ends on the anchor within a frame of length `horizon` and passes
    every device meanwhile, whose frames thus start at most a horizon before or after the anchor's.
    """
    items, slots = len(net.queue), net.members.shape[1]
    devices = len(net.members)
    count = np.diff(net.first)
    on_device = net.members[net.device[net.queue]]
    before = np.zeros((items, slots), np.int64)
    after = np.where(on_device >= 0, count[on_device], 0)
    all_items = np.arange(items)
    rank = all_items - net.first[net.queue]
    before[all_items, net.slot[net.queue]] = rank
    after[all_items, net.slot[net.queue]] = rank + 1
    mine, there, ranks = net.queue[:, None], on_device >= 0, np.broadcast_to(rank[:, None], before.shape)
    leads, follows = net.precedes[on_device, mine] & there, net.precedes[mine, on_device] & there
    before[leads], after[follows] = ranks[leads] + 1, ranks[follows]
    frames = np.full(devices, horizon if net.anchor >= 0 else 0)
    if net.anchor >= 0:
        frames[net.anchor] = 0
    early = -frames[net.device[net.queue]]
    late = frames[net.device[net.queue]] + horizon - net.duration[net.queue]
    value = np.concatenate([early, before.ravel(), -frames, late, after.ravel(), frames])
    return Box(value, *_empty(items, slots, len(value)))


def copy_of(box: Box) -> Box:
    """Return an independent box with the same windows."""
    return Box(box.value.copy(), *_empty(len(box.agenda), len(box.low), len(box.value)))


def meet(box: Box, other: Box) -> None:
    """Narrow `box` to what lies in `other` as well."""
    half, mine, theirs = len(box.value) // 2, box.value, other.value
    np.maximum(mine[:half], theirs[:half], out=mine[:half])
    np.minimum(mine[half:], theirs[half:], out=mine[half:])


def _empty(
    items: int, slots: int, values: int
) -> tuple[Ints, Ints, NDArray[np.bool_], Ints, Ints, Ints, Ints]:
    trail = np.zeros((8 * values, 2), np.int64)
    room = [np.zeros(slots, np.int64) for _ in range(3)]
    return (trail, np.zeros(items, np.int64), np.zeros(items, np.bool_), *room, np.zeros(5, np.int64))  # type: ignore[return-value]


@compiled
def put(box: Any, at: int, value: int) -> None:
    """Write a value, recorded if a supposition is being tried."""
    state = box.state
    if state[ON] == 1:
        entry = state[SIZE]
        box.trail[entry, 0] = at
        box.trail[entry, 1] = box.value[at]
        state[SIZE] = entry + 1
    box.value[at] = value


@compiled
def push(box: Any, item: int) -> None:
    """Put an item on the agenda unless it is there."""
    if not box.waiting[item]:
        box.waiting[item] = True
        state = box.state
        end = state[HEAD] + state[COUNT]
        if end >= len(box.agenda):
            end -= len(box.agenda)
        box.agenda[end] = item
        state[COUNT] += 1


@compiled
def pop(box: Any) -> int:
    """Take the oldest item from the agenda."""
    state = box.state
    item: int = box.agenda[state[HEAD]]
    state[HEAD] += 1
    if state[HEAD] == len(box.agenda):
        state[HEAD] = 0
    state[COUNT] -= 1
    box.waiting[item] = False
    return item


@compiled
def push_all(box: Any) -> None:
    """Put every item on the agenda."""
    for item in range(len(box.agenda)):
        push(box, item)


@compiled
def clear(box: Any) -> None:
    """Empty the agenda."""
    while box.state[COUNT] > 0:
        pop(box)


@compiled
def undo(box: Any) -> None:
    """Take back everything since recording began, and stop recording."""
    state = box.state
    for entry in range(state[SIZE] - 1, -1, -1):
        box.value[box.trail[entry, 0]] = box.trail[entry, 1]
    state[SIZE] = 0
    state[ON] = 0
