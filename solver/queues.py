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

from dataclasses import dataclass
from functools import lru_cache

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order, Schedule

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
    instance = queues.instance
    words: list[Word] = []
    for device in order.to_lists():
        word: Word = []
        for kind, stage, microbatch in device:
            kinds = (OpKind.B, OpKind.W) if kind is OpKind.BW else (kind,)
            word += [queues.index[k, instance.route(microbatch), stage] for k in kinds]
        words.append(word)
    return words


def starts_of(queues: Queues, schedule: Schedule) -> list[int]:
    """Return the start of each item in ticks, for a schedule whose backwards are split."""
    found: list[list[int]] = [[] for _ in queues.queues]
    for device, word in enumerate(words_of(queues, schedule.order)):
        for q, start in zip(word, schedule.start[schedule.order.rows(device)].tolist(), strict=True):
            found[q].append(start)
    return [start for starts in found for start in starts]


def order_of(queues: Queues, words: list[Word]) -> Order:
    """Return the order that the words stand for, with the microbatches in sequence within each queue."""
    return Order.from_lists([_operations(queues, word) for word in words])


def _operations(queues: Queues, word: Word) -> list[tuple[int, int, int]]:
    instance = queues.instance
    of_route: dict[int, list[int]] = {}
    for m in range(instance.microbatches):
        of_route.setdefault(instance.route(m), []).append(m)
    done = dict.fromkeys(word, 0)
    waiting: dict[int, list[tuple[int, int]]] = {}  # of each W queue, (stage, microbatch) of its B's so far
    found = []
    for q in word:
        queue, k = queues.queues[q], done[q]
        done[q] += 1
        if queue.kind is OpKind.W:
            stage, microbatch = waiting[q][k]
        else:
            ((route, stage),) = queue.members
            microbatch = of_route[route][k]
        if queue.kind is OpKind.B:
            waiting.setdefault(queues.index[OpKind.W, route, stage], []).append((stage, microbatch))
        found.append((int(queue.kind), stage, microbatch))
    return found
