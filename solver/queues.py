"""First-in-first-out queues: the form in which an instance with identical microbatches is solved.

`tightpipe.core.graph` says why some cheapest schedule runs the operations of each kind, stage and class of
microbatches in a *queue*, first in, first out, and when W's share a queue, a *pool*. On each device a
schedule interleaves the queues, and the sequence of queues from which the device takes its operations is its
*word*. It is the device's order without the names of the microbatches.

An *item* is an element of a queue, and thus one operation. Items are numbered from 0, queue after queue; the
rank of an item is its place in its queue, from 0.

Where a fused backward takes as long as its B and its W, it is never needed: one right after the other, the B
frees its memory and its successors earlier. Where it is shorter, a *token* of a word is an item, or a joint
operation: a B with its W, or an F with both. A fused backward has the B and the W of one microbatch. The
other W's form a queue, whose k-th item takes the k-th of the other B's, so a fused backward may overtake W's
that wait.

A busy link changes nothing. Messages leave in the sequence of the operations that made them, so relabelled
messages leave when the original ones did.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tightpipe.core.graph import graph_of
from tightpipe.core.graph_arrays import arrays_of
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order, Schedule

Member = tuple[int, int]  # route, stage
Word = list[int]  # the queue of each operation, in the sequence in which the device runs them
SINGLE, FUSED, PAIRED = range(3)
"""How an item of a word runs with the next one: one by one, a B with a W, an F with a fused backward."""


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
        graph = graph_of(self.instance)
        of = {v: q for q, nodes in enumerate(graph.queues) for v in nodes}
        edges = ((of[edge.before], of[edge.after], edge.lag) for edge in graph.edges)
        return [(q, r, lag) for q, r, lag in edges if len(self.queues[r].members) == 1]

    def links(self) -> list[list[tuple[int, int, int]]]:
        """Return, for each link on which a message may have to wait, its triples of `precedences`."""
        arrays = arrays_of(self.instance)
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(arrays.links)]
        for q, queue in enumerate(arrays.queues):
            if queue["link"] >= 0:
                found[queue["link"]].append((q, int(queue["receiver"]), int(queue["travel"])))
        return found


@lru_cache(maxsize=16)
def queues_of(instance: Instance) -> Queues:
    """Return the queues of `instance`."""
    graph = graph_of(instance)
    found = []
    for nodes in graph.queues:
        first, count = graph.nodes[nodes[0]], sum(graph.nodes[v].count for v in nodes)
        members = tuple((graph.nodes[v].mb_class, graph.nodes[v].stage) for v in nodes)
        found.append(Queue(first.device, first.kind, members, count, first.duration, first.delta))
    index = {(queue.kind, r, s): q for q, queue in enumerate(found) for r, s in queue.members}
    return Queues(instance, tuple(found), index)


class Tokens(NamedTuple):
    """What a device runs in sequence: its word, and which of its items run together."""

    word: Word
    joined: list[int]  # for each item, how it runs with the next one: `SINGLE`, `FUSED` or `PAIRED`


def words_of(queues: Queues, order: Order) -> list[Word]:
    """Return the word of each device, in which a fused backward becomes a B and a W."""
    return [tokens.word for tokens in tokens_of(queues, order)]


def tokens_of(queues: Queues, order: Order) -> list[Tokens]:
    """Return the tokens of each device.

    Where no joint operation takes another time than its operations one after the other, all are single.
    """
    instance, joint = queues.instance, graph_of(queues.instance).joint
    found = []
    for device in order.to_slots():
        word: Word = []
        joined: list[int] = []
        for slot in device:
            for kind, stage, microbatch in slot:
                kinds = (OpKind.B, OpKind.W) if kind is OpKind.BW else (kind,)
                word += [queues.index[k, instance.route(microbatch), stage] for k in kinds]
                joined += [FUSED, SINGLE] if kind is OpKind.BW else [SINGLE]
            if [kind for kind, _, _ in slot] == [OpKind.F, OpKind.BW]:
                joined[-3] = PAIRED
        found.append(Tokens(word, joined if joint else [SINGLE] * len(word)))
    return found


def starts_of(queues: Queues, schedule: Schedule) -> list[int]:
    """Return the start of each item in ticks, for a schedule whose backwards are split."""
    found: list[list[int]] = [[] for _ in queues.queues]
    for device, word in enumerate(words_of(queues, schedule.order)):
        for q, start in zip(word, schedule.start[schedule.order.rows(device)].tolist(), strict=True):
            found[q].append(start)
    return [start for starts in found for start in starts]


def order_of(queues: Queues, words: list[Word], joined: list[list[int]] | None = None) -> Order:
    """Return the order that the words stand for, with the microbatches in sequence within each queue.

    Parameters
    ----------
    queues
        The queues.
    words
        The word of each device.
    joined
        For each device and item, how it runs with the next one, as in `Tokens`; None if all are single.
    """
    if joined is None:
        joined = [[SINGLE] * len(word) for word in words]
    slots = (_slots(queues, Tokens(word, mine)) for word, mine in zip(words, joined, strict=True))
    return Order.from_slots(list(slots))


def _slots(queues: Queues, tokens: Tokens) -> list[list[tuple[int, int, int]]]:
    instance = queues.instance
    of_route: dict[int, list[int]] = {}
    for m in range(instance.microbatches):
        of_route.setdefault(instance.route(m), []).append(m)
    done = dict.fromkeys(tokens.word, 0)
    single: dict[int, list[tuple[int, int]]] = {}  # of each W queue, (stage, microbatch) of its single B's
    found: list[list[tuple[int, int, int]]] = []
    follows = SINGLE  # how the item before runs with this one
    for q, joins in zip(*tokens, strict=True):
        queue = queues.queues[q]
        before, follows = follows, joins
        if queue.kind is OpKind.W and before == FUSED:
            continue  # its BW is in the order
        k, done[q] = done[q], done[q] + 1
        if queue.kind is OpKind.W:
            stage, microbatch = single[q][k]
        else:
            ((route, stage),) = queue.members
            microbatch = of_route[route][k]
        kind = OpKind.BW if joins == FUSED else queue.kind
        if kind is OpKind.B:
            single.setdefault(queues.index[OpKind.W, route, stage], []).append((stage, microbatch))
        operation = (int(kind), stage, microbatch)
        if before == PAIRED:
            found[-1].append(operation)
        else:
            found.append([operation])
    return found
