"""The state of windows that rules narrow in place, with a trail by which a supposition is taken back.

All values lie in one flat array, so that the trail knows each by its position; the fields that rules read
are views of it. Its first half holds the lower values: the least start of each item, how many elements of
each queue of its device surely precede it, and the least start of each device's frame. The second half
holds the upper values in the same sequence: the largest start, the first element of each queue that surely
follows, and the largest start of the frame. Lower values only rise and upper values only fall, so two
states that both hold meet in their maxima and minima.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.kernels.compiled import compiled_inline

from .queue_arrays import QueueArrays

RECORDING, RECORDED = 0, 1  # of WindowState.counter: whether changes are recorded, entries of the trail
STEPS = 2  # of WindowState.counter: items worked on
HEAD, LENGTH = 3, 4  # of WindowState.counter: the agenda is a ring


class WindowState(NamedTuple):
    """N items, at most M queues on one of p devices; all arrays are changed in place."""

    value: Ints  # (2 (N + N M + p),) the six fields that follow, one after the other
    earliest: Ints  # (N,) least start of each item, in ticks
    before: Ints  # (N, M) how many elements of its device's k-th queue surely precede each item
    frame_earliest: Ints  # (p,) least start of each device's frame
    latest: Ints  # (N,) largest start of each item
    after: Ints  # (N, M) the first element of its device's k-th queue that surely follows each item
    frame_latest: Ints  # (p,) largest start of each device's frame
    trail: Ints  # (entries, 2) position in `value`, and what was there before
    agenda: Ints  # (N,) items whose rules have to be applied, as a ring
    waiting: Bools  # (N,) whether an item is on the agenda
    low: Ints  # (M,) room for one item's orders: as a row of `before`, while rules narrow it
    high: Ints  # (M,) as a row of `after`
    cursor: Ints  # (M,) room for one element of each queue, where a rule walks through them
    counter: Ints  # (5,)


def open_state(arrays: QueueArrays, horizon: int) -> WindowState:
    """Return the state in which only the sequence within each queue and of one microbatch is decided.

    Microbatch 0 of route 0 starts and ends on the anchor within a frame of length `horizon` and passes
    every device meanwhile, whose frames thus start at most a horizon before or after the anchor's.
    """
    devices = len(arrays.on)
    frames = np.full(devices, horizon if arrays.anchor >= 0 else 0)
    if arrays.anchor >= 0:
        frames[arrays.anchor] = 0
    early = -frames[arrays.device[arrays.queue]]
    late = frames[arrays.device[arrays.queue]] + horizon - arrays.duration[arrays.queue]
    before, after = _first_orders(arrays)
    value = np.concatenate([early, before.ravel(), -frames, late, after.ravel(), frames])
    return _state_of(value, *before.shape)


def copy_of(state: WindowState) -> WindowState:
    """Return an independent state with the same windows and an empty agenda."""
    return _state_of(state.value.copy(), *state.before.shape)


def meet(state: WindowState, other: WindowState) -> None:
    """Narrow `state` to what lies in `other` as well."""
    half, mine, theirs = len(state.value) // 2, state.value, other.value
    np.maximum(mine[:half], theirs[:half], out=mine[:half])
    np.minimum(mine[half:], theirs[half:], out=mine[half:])


def _first_orders(arrays: QueueArrays) -> tuple[Ints, Ints]:
    """Return what precedes and follows each item in every schedule, by the precedences alone."""
    mine, on_device = arrays.queue[:, None], arrays.on[arrays.device[arrays.queue]]
    exists = on_device >= 0
    items = np.arange(len(mine))
    rank = items - arrays.first[arrays.queue]
    before = np.zeros(on_device.shape, np.int64)
    after = np.where(exists, np.diff(arrays.first)[on_device], 0)
    before[items, arrays.local[arrays.queue]] = rank
    after[items, arrays.local[arrays.queue]] = rank + 1
    ranks = np.broadcast_to(rank[:, None], before.shape)
    leads, follows = arrays.precedes[on_device, mine] & exists, arrays.precedes[mine, on_device] & exists
    before[leads], after[follows] = ranks[leads] + 1, ranks[follows]
    return before, after


def _state_of(value: Ints, items: int, width: int) -> WindowState:
    """Return the state of the values, with nothing on the trail and the agenda."""
    return WindowState(
        value,
        *_views(value[: len(value) // 2], items, width),
        *_views(value[len(value) // 2 :], items, width),
        trail=np.zeros((8 * len(value), 2), np.int64),
        agenda=np.zeros(items, np.int64),
        waiting=np.zeros(items, np.bool_),
        low=np.zeros(width, np.int64),
        high=np.zeros(width, np.int64),
        cursor=np.zeros(width, np.int64),
        counter=np.zeros(5, np.int64),
    )


def _views(half: Ints, items: int, width: int) -> tuple[Ints, Ints, Ints]:
    """Return the starts, the orders and the frames in one half of the values."""
    orders = items * (1 + width)
    return half[:items], half[items:orders].reshape(items, width), half[orders:]


@compiled_inline
def raise_earliest(state: WindowState, item: int, time: int) -> None:
    """Let the item start at `time` or later."""
    _write(state, item, time)


@compiled_inline
def lower_latest(state: WindowState, item: int, time: int) -> None:
    """Let the item start at `time` or earlier."""
    _write(state, _half(state) + item, time)


@compiled_inline
def raise_before(state: WindowState, item: int, k: int, count: int) -> None:
    """Let the first `count` elements of the device's k-th queue precede the item."""
    _write(state, len(state.agenda) + item * len(state.low) + k, count)


@compiled_inline
def lower_after(state: WindowState, item: int, k: int, count: int) -> None:
    """Let the elements of the device's k-th queue from `count` on follow the item."""
    _write(state, _half(state) + len(state.agenda) + item * len(state.low) + k, count)


@compiled_inline
def narrow_frame(state: WindowState, device: int, earliest: int, latest: int) -> None:
    """Let the device's frame start between two times."""
    at = len(state.agenda) * (1 + len(state.low)) + device
    _write(state, at, earliest)
    _write(state, _half(state) + at, latest)


@compiled_inline
def undo(state: WindowState) -> None:
    """Take back everything since recording began, and stop recording."""
    for entry in range(state.counter[RECORDED] - 1, -1, -1):
        state.value[state.trail[entry, 0]] = state.trail[entry, 1]
    state.counter[RECORDED] = 0
    state.counter[RECORDING] = 0


@compiled_inline
def _half(state: WindowState) -> int:
    """Return where the upper values begin."""
    return len(state.value) // 2


@compiled_inline
def _write(state: WindowState, at: int, value: int) -> None:
    """Write a value, recorded if a supposition is being tried."""
    if state.counter[RECORDING] == 1:
        entry = state.counter[RECORDED]
        state.trail[entry, 0] = at
        state.trail[entry, 1] = state.value[at]
        state.counter[RECORDED] = entry + 1
    state.value[at] = value
