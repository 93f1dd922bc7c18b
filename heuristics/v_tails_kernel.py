"""The compiled beam search that packs the end of one device, for `v_tails`.

A device runs five kinds of moves: F's of its lower and of its upper stage, B's of the upper and of the lower
stage, and W's. Each kind takes the microbatches in sequence, so how many of each have run, the *counts*, says
what is left and how much memory is held. The search extends sequences by one move at a time and keeps the
`WIDTH` best ones, and at most `_PER_COUNTS` of those with the same counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.kernels.compiled import compiled, compiled_with_arrays

LOWER_F, UPPER_F, UPPER_B, LOWER_B, WEIGHT = range(5)  #: the kinds of moves
WIDTH = 200
_PER_COUNTS = 3
_NEVER = 2**60
_SLOTS = 2**12  # of the table of counts: a power of two, far above `WIDTH`
_BITS = 13  # of one count in a key, enough for 8191 microbatches


class Tail(NamedTuple):
    """What is left for a device to run, and when it may run.

    Two-dimensional arrays have a row for each kind but W and a column for each microbatch. Times are ticks.
    """

    done: Ints  #: (5,) moves of each kind that have run before
    ticks: Ints  #: (5,) ticks of a move of each kind
    earliest: Ints  #: earliest start
    latest: Ints  #: latest start
    wanted: Ints  #: a start before which B's of the upper stage should not run, and others not after it
    weight: Floats  #: by how much a tick away from it counts, before it is squared
    demand: Ints  #: (2, n + 1) the latest of what `_forced` compares, for lower B's and for upper F's
    memory: Ints  #: (3,) what an F takes until its B and until its W, and the limit
    begin: int  #: first tick
    idle: int  #: ticks that the device may idle
    thrift: float  #: what all these idle ticks count
    last: bool  #: whether it is the last device, on which the upper stage follows the lower one


class _Sequences(NamedTuple):
    """Sequences of moves by their last ones."""

    counts: Ints  # (size, 5)
    end: Ints  # (size,) end of the last move
    idle: Ints  # (size,)
    far: Floats  # (size,) how far its moves are from where they should be
    rank: Floats  # (size,) the lower, the better
    parent: Ints  # (size,) the sequence without its last move
    kind: Ints  # (size,) of the last move
    start: Ints  # (size,) of the last move


@compiled_with_arrays
def pack(tail: Tail) -> tuple[Ints, Ints]:
    """Return the kinds and the starts of all moves that are left; empty arrays if no sequence is found."""
    steps = int(6 * tail.earliest.shape[1] - tail.done.sum())
    history = np.zeros((3, steps, WIDTH), np.int64)  # parents, kinds and starts
    now, more = _room(WIDTH), _room(5 * WIDTH)
    now.end[0], size = tail.begin, 1
    for kind in range(5):
        now.counts[0, kind] = tail.done[kind]
    slots = np.zeros((3, _SLOTS), np.int64)
    for step in range(steps):
        found = _extend(tail, now, size, more)
        size = _keep(more, np.argsort(more.rank[:found]), now, slots)
        if size == 0:
            return history[0, 0, :0], history[0, 0, :0]
        for at in range(size):  # an assignment of an array takes seconds to compile
            history[0, step, at], history[1, step, at] = now.parent[at], now.kind[at]
            history[2, step, at] = now.start[at]
    kinds, starts, at = np.zeros(steps, np.int64), np.zeros(steps, np.int64), int(np.argmin(now.far[:size]))
    for step in range(steps - 1, -1, -1):
        kinds[step], starts[step] = history[1, step, at], history[2, step, at]
        at = history[0, step, at]
    return kinds, starts


@compiled_with_arrays
def _room(size: int) -> _Sequences:
    far, rank, of = np.zeros(size), np.zeros(size), np.zeros((5, size), np.int64)
    return _Sequences(np.zeros((size, 5), np.int64), of[0], of[1], far, rank, of[2], of[3], of[4])


@compiled
def _extend(tail: Tail, now: _Sequences, size: int, more: _Sequences) -> int:
    """Write all sequences with one move more to `more`, and return their number."""
    found = 0
    for at in range(size):
        for kind in range(5):
            start = _start(tail, now.counts[at], kind, now.end[at])
            end, idle = start + tail.ticks[kind], now.idle[at] + start - now.end[at]
            if start == _NEVER or idle > tail.idle:
                continue
            counts = more.counts[found]
            for each in range(5):
                counts[each] = now.counts[at, each] + (each == kind)
            idle_in_all = idle + _forced(tail, counts, end)
            if idle_in_all > tail.idle or _is_late(tail, counts, end):
                continue
            away = 0.0
            if kind != WEIGHT:
                k = now.counts[at, kind]
                late = start - tail.wanted[kind, k]
                away = tail.weight[kind, k] * max(0, -late if kind == UPPER_B else late)
            more.end[found], more.idle[found], more.far[found] = end, idle, now.far[at] + away * away
            more.rank[found] = more.far[found] + tail.thrift * idle_in_all / (tail.idle + 1)
            more.parent[found], more.kind[found], more.start[found] = at, kind, start
            found += 1
    return found


@compiled
def _start(tail: Tail, counts: Ints, kind: int, now: int) -> int:
    """Return the start of the next move of a kind after the tick `now`; `_NEVER` if it cannot run next."""
    k, backwards = counts[kind], counts[UPPER_B] + counts[LOWER_B]
    if kind == WEIGHT:
        return now if k < backwards else _NEVER
    if k == tail.earliest.shape[1]:
        return _NEVER
    if kind in (LOWER_F, UPPER_F):
        held = (counts[LOWER_F] + counts[UPPER_F] - backwards) * tail.memory[0]
        pending = (backwards - counts[WEIGHT]) * tail.memory[1]
        if held + pending + tail.memory[0] > tail.memory[2]:
            return _NEVER
    before = kind - 1 if tail.last else (UPPER_F if kind == UPPER_B else LOWER_F)
    if kind != LOWER_F and k >= counts[before]:
        return _NEVER
    start = max(now, tail.earliest[kind, k])
    return start if start <= tail.latest[kind, k] else _NEVER


@compiled
def _is_late(tail: Tail, counts: Ints, now: int) -> bool:
    """Return whether the next move of some kind can only start too late."""
    for kind in range(WEIGHT):
        if counts[kind] < tail.latest.shape[1] and now > tail.latest[kind, counts[kind]]:
            return True
    return False


@compiled
def _forced(tail: Tail, counts: Ints, now: int) -> int:
    """Return how long the device will idle at least from the tick `now` on.

    Before a lower B arrives, it can only run the moves that need none of the lower B's from this one on, and
    before an upper F arrives those that need none of the upper F's.
    """
    n, f, b, w = tail.latest.shape[1], tail.ticks[LOWER_F], tail.ticks[UPPER_B], tail.ticks[WEIGHT]
    weights, forwards = counts[WEIGHT] * w - now, (n - counts[LOWER_F]) * f
    lower, upper = tail.demand[0, counts[LOWER_B]], tail.demand[1, counts[UPPER_F]]
    lower += counts[LOWER_B] * b + weights - forwards - (n - counts[UPPER_F]) * f - (n - counts[UPPER_B]) * b
    upper += counts[UPPER_F] * f + counts[UPPER_B] * b + weights - forwards - (n - counts[LOWER_B]) * b
    return int(max(0, lower, upper))


@compiled
def _keep(more: _Sequences, ranked: Ints, kept: _Sequences, slots: Ints) -> int:
    """Write the best sequences to `kept`, and return their number; `ranked` has their places, best first.

    Of sequences with the same counts, a worse one is kept only if it ends earlier. `slots` is a hash table
    with the counts, the number of kept sequences that have them, and the earliest end of these.
    """
    slots[0, :] = -1
    slots[1, :] = 0
    size = 0
    for at in ranked:
        if size == len(kept.end):
            break
        key, counts = 0, more.counts[at]
        for kind in range(WEIGHT):
            key = (key << _BITS) + counts[kind]
        slot = (key * 0x9E3779B1 >> 16) & (_SLOTS - 1)
        while slots[0, slot] not in (-1, key):
            slot = (slot + 1) & (_SLOTS - 1)
        if slots[1, slot] > 0 and (slots[1, slot] == _PER_COUNTS or more.end[at] >= slots[2, slot]):
            continue
        slots[0, slot], slots[2, slot] = key, more.end[at]
        slots[1, slot] += 1
        for kind in range(5):
            kept.counts[size, kind] = counts[kind]
        kept.end[size], kept.idle[size] = more.end[at], more.idle[at]
        kept.far[size], kept.parent[size] = more.far[at], more.parent[at]
        kept.kind[size], kept.start[size] = more.kind[at], more.start[at]
        size += 1
    return size
