"""First-in-first-out queues: the form in which an instance with identical microbatches is solved.

Operations of one kind at one stage differ only by their microbatch, and microbatches of one route do not
differ at all. Given any schedule, let the k-th operation of each (kind, stage, route) belong to the k-th
microbatch of the route. Every k-th operation then still has its k-th predecessors before it, and memory and
times stay the same. So there is an equally good schedule in which the operations of each kind, stage and
route form a *queue*, which runs first in, first out. On each device a schedule interleaves the queues, and
the sequence of queues from which the device takes its operations is its *word*. It is the device's order
without the names of the microbatches.

An *item* is an element of a queue, and thus one operation. Items are numbered from 0, queue after queue; the
rank of an item is its place in its queue, from 0.

Fused backwards are never needed: a B and its W one right after the other take as long, and the B frees its
memory and its successors earlier.

A busy link changes nothing. Messages leave in the sequence of the operations that made them, so relabelled
messages leave when the original ones did.

W's of one device with equal duration and equal memory are interchangeable too, whatever their stage: they
share a queue, and the l-th of them takes the l-th B of those stages. A queue of W's of several stages is a
*pool*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from tightpipe.core.instance import Instance
from tightpipe.core.instance_arrays import arrays_of
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order, Schedule
from tightpipe.kernels.arrays import Ints

Member = tuple[int, int]  # route, stage
Word = list[int]  # the queue of each operation, in the sequence in which the device runs them
_DIRECT = (OpKind.F, OpKind.B)


@dataclass(frozen=True, slots=True)
class Queue:
    """Operations of one device that run in a fixed sequence among themselves.

    Parameters
    ----------
    device
        Number of the device.
    kind
        F, B or W.
    members
        The (route, stage) pairs of the operations: one pair for F and B, one or several for W.
    count
        Number of operations.
    duration
        Ticks that each operation takes.
    delta
        Memory that each operation adds; negative where it frees memory.
    """

    device: int
    kind: OpKind
    members: tuple[Member, ...]
    count: int
    duration: int
    delta: int


@dataclass(frozen=True, slots=True)
class Queues:
    """All queues of an instance.

    Parameters
    ----------
    instance
        The problem that the queues stand for.
    queues
        The queues; those of one device lie next to each other.
    index
        For each (kind, route, stage), the position in `queues` of the queue with these operations.
    """

    instance: Instance
    queues: tuple[Queue, ...]
    index: dict[tuple[OpKind, int, int], int]

    def on(self, device: int) -> list[int]:
        """Return the indices of the queues of `device`."""
        return [q for q, queue in enumerate(self.queues) if queue.device == device]

    def backwards_of(self, q: int) -> list[int]:
        """Return the indices of the queues of the B's that the W's in queue `q` belong to."""
        return [self.index[OpKind.B, r, s] for r, s in self.queues[q].members]

    def precedences(self) -> list[tuple[int, int, int]]:
        """Return triples (q, r, lag), each of which says that the items of queue r wait for those of queue q.

        The k-th item of r starts at least `lag` ticks after the end of the k-th item of q. Pools are left
        out, because their rule is a sum over several queues.
        """
        found = []
        last = self.instance.stages - 1
        for r, route in enumerate(self.instance.placement.routes):
            for s in range(last):
                there = self.instance.comm(route[s], route[s + 1])
                back = self.instance.comm(route[s + 1], route[s])
                found.append((self.index[OpKind.F, r, s], self.index[OpKind.F, r, s + 1], there))
                found.append((self.index[OpKind.B, r, s + 1], self.index[OpKind.B, r, s], back))
            found.append((self.index[OpKind.F, r, last], self.index[OpKind.B, r, last], 0))
        for q, queue in enumerate(self.queues):
            if queue.kind is OpKind.W and len(queue.members) == 1:
                found.append((self.backwards_of(q)[0], q, 0))
        return found

    def links(self) -> list[list[tuple[int, int, int]]]:
        """Return, for each directed link on which a message may have to wait, its triples of `precedences`.

        A link is left out if no operation that sends over it is shorter than the link occupancy. Such a link
        is always free again before the next message.
        """
        found: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for q, r, lag in self.precedences():
            ends = self.queues[q].device, self.queues[r].device
            if ends[0] != ends[1]:
                found.setdefault(ends, []).append((q, r, lag))
        busy = self.instance.costs.link_occupancy
        return [link for link in found.values() if any(self.queues[q].duration < busy for q, _, _ in link)]


@lru_cache(maxsize=16)
def queues_of(instance: Instance) -> Queues:
    """Return the queues of `instance`."""
    count = instance.microbatches // len(instance.placement.routes)
    found: list[Queue] = []
    for device in range(instance.devices):
        held = [
            (r, s)
            for r, route in enumerate(instance.placement.routes)
            for s, d in enumerate(route)
            if d == device
        ]
        for kind in _DIRECT:
            for r, s in held:
                cost = instance.duration(kind, s), instance.memory_delta(kind, s)
                found.append(Queue(device, kind, ((r, s),), count, *cost))
        found += _weight_queues(instance, device, held, count)
    index = {(queue.kind, r, s): q for q, queue in enumerate(found) for r, s in queue.members}
    return Queues(instance, tuple(found), index)


def _weight_queues(instance: Instance, device: int, held: list[Member], count: int) -> list[Queue]:
    pools: dict[tuple[int, int], list[Member]] = {}
    for r, s in held:
        cost = instance.duration(OpKind.W, s), instance.memory_delta(OpKind.W, s)
        pools.setdefault(cost, []).append((r, s))
    return [
        Queue(device, OpKind.W, tuple(members), count * len(members), *cost)
        for cost, members in pools.items()
    ]


def words_of(queues: Queues, order: Order) -> list[Word]:
    """Return the word of each device, in which a fused backward becomes a B and a W."""
    word, offsets = flat_words_of(queues, order)
    numbers = word.tolist()
    return [numbers[a:b] for a, b in pairwise(offsets.tolist())]


def flat_words_of(queues: Queues, order: Order) -> tuple[Ints, Ints]:
    """Return the words of all devices as one array, and where in it each device's word begins and ends.

    The second array has one entry more than there are devices.
    """
    arrays = arrays_of(queues.instance)
    kind, stage, microbatch = order.operations.T
    fused = kind == OpKind.BW
    copies = np.where(fused, 2, 1)
    is_weight = np.zeros(int(copies.sum()), np.bool_)  # of the two copies of a BW, the second is the W
    is_weight[np.cumsum(copies)[fused] - 1] = True
    split = np.repeat(np.where(fused, OpKind.B, kind), copies)
    split[is_weight] = OpKind.W
    route = arrays.route[np.repeat(microbatch, copies)]
    word = _numbers(queues)[split, route, np.repeat(stage, copies)]
    return word, np.concatenate([[0], np.cumsum(copies)])[order.offsets]


def starts_of(queues: Queues, schedule: Schedule) -> list[int]:
    """Return the start of each item in ticks, for a schedule whose backwards are split."""
    word, _ = flat_words_of(queues, schedule.order)
    starts: list[int] = schedule.start[np.argsort(word, kind="stable")].tolist()
    return starts


def order_of(queues: Queues, words: Sequence[Sequence[int]]) -> Order:
    """Return the order that the words stand for, with the microbatches in sequence within each queue."""
    word = np.concatenate([np.asarray(each, np.int64) for each in words])
    return order_of_flat(queues, word, np.cumsum([0, *map(len, words)]))


def order_of_flat(queues: Queues, word: Ints, offsets: Ints) -> Order:
    """Return the order that words stand for which are given as one array, as `flat_words_of` returns them.

    A W belongs to the first B of its pool whose W has not run yet.
    """
    kinds = np.array([int(queue.kind) for queue in queues.queues])
    routes, stages = np.array([queue.members[0] for queue in queues.queues]).T
    kind, stage, rank = kinds[word], stages[word], _ranks(word)
    microbatch = _microbatches(queues.instance)[routes[word], np.minimum(rank, _most(queues) - 1)]
    pools = np.where(kinds == OpKind.B, _numbers(queues)[OpKind.W, routes, stages], -1)
    weights, backwards = np.flatnonzero(kind == OpKind.W), np.flatnonzero(kind == OpKind.B)
    # A pool lies on one device, so its B's and its W's stand in the sequence of the device's word.
    weights = weights[np.argsort(word[weights], kind="stable")]
    backwards = backwards[np.argsort(pools[word[backwards]], kind="stable")]
    stage[weights], microbatch[weights] = stage[backwards], microbatch[backwards]
    return Order(np.stack([kind, stage, microbatch], axis=1), offsets)


def _ranks(word: Ints) -> Ints:
    """Return for each entry how many equal entries stand before it."""
    by_queue = np.argsort(word, kind="stable")
    ordered = word[by_queue]
    rank = np.empty_like(word)
    rank[by_queue] = np.arange(len(word)) - np.searchsorted(ordered, ordered)
    return rank


def _numbers(queues: Queues) -> Ints:
    """Return `Queues.index` as an array, shape (3, routes, stages)."""
    found = np.empty((3, len(queues.instance.placement.routes), queues.instance.stages), np.int64)
    for key, number in queues.index.items():
        found[key] = number
    return found


def _microbatches(instance: Instance) -> Ints:
    """Return the microbatches of each route in sequence, shape (routes, microbatches per route)."""
    return np.argsort(arrays_of(instance).route, kind="stable").reshape(len(instance.placement.routes), -1)


def _most(queues: Queues) -> int:
    return queues.instance.microbatches // len(queues.instance.placement.routes)
