"""First-in-first-out queues: the form in which an instance is searched.

`tightpipe.model.graph` proves that some cheapest schedule runs the operations of each kind, stage and class,
of microbatches or of one slice of each, in a *queue*, first in, first out, and says when W's share a queue, a
*pool*. On each device a schedule interleaves the queues, those of different classes as freely as those of
different stages. The sequence of queues from which the device takes its operations is its *word*: the
device's order without the names of the microbatches.

An *item* is an element of a queue, and thus one operation. Items are numbered from 0, queue after queue; the
rank of an item is its place in its queue, from 0.

Where a fused backward is no shorter than its B and its W, it is never needed: one right after the other, the
B frees its memory and its successors earlier. Where it is shorter, a *token* of a word is an item, or a joint
operation: a B with its W, or an F with both. A fused backward has the B and the W of one microbatch. The
other W's form a queue, whose k-th item takes the k-th of the other B's, so a fused backward may overtake W's
that wait.

A busy link changes nothing. Messages leave in the sequence of the operations that made them, so relabelled
messages leave when the original ones did.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from math import comb
from typing import Any, NamedTuple

import numpy as np

from tightpipe.base.errors import InputError
from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph import graph_of
from tightpipe.model.graph_arrays import GraphArrays, arrays_of, arrays_without_pools, ranks, units_of
from tightpipe.model.instance import Instance
from tightpipe.model.operation import FUSED, PAIRED, SINGLE, OpKind
from tightpipe.model.schedule import Order, Schedule

from .copies import NO_COPIES, Copied, rows_of


class Rule(StrEnum):
    """A rule that a solver may leave out. The value names the entry of an instance that brings it in."""

    PAIRS = "overlapped"  #: an F and a backward of a device may run together, in a time of their own
    FUSED = "fused"  #: a B and its W may run as one operation, in less time than one after the other
    ABSENT = "backward, weight"  #: some stage has no B or no W
    EMPTY = "forward"  #: some stage is empty: its F and B take no time
    STEP = "step"  #: a step takes more than its operations: stages get ready, are reduced, optimizers run
    CLASSES = "classes"  #: microbatches differ in their times or their memory
    SLICES = "slices"  #: every microbatch is cut into slices that run in sequence
    FLUSHES = "iterations"  #: a device ends an iteration before it begins the next
    OFFLOAD = "offload"  #: a part of an activation may leave its device between F and backward


_INSTEAD = {  # of the rules that some method refuses
    Rule.PAIRS: "does not overlap operations; leave it out, or use best, cpsat, milp or improve",
    Rule.EMPTY: "needs an F of a tick or more at every stage; use best, cpsat or improve",
    Rule.CLASSES: "needs microbatches that are alike; use best, cpsat, milp or improve",
    Rule.SLICES: "needs whole microbatches; leave them out, or use best, cpsat, milp or improve",
    Rule.FLUSHES: "does not flush; set flush to false, or use best, cpsat, milp or improve",
    Rule.OFFLOAD: "does not copy activations; leave it out, or use best, cpsat or improve",
}


def rules_of(instance: Instance) -> dict[Rule, Any]:
    """Return those rules that an instance has, with the value of the entry that brings each of them in."""
    found: dict[Rule, Any] = {}
    if instance.has_pairs:
        found[Rule.PAIRS] = instance.costs.overlapped or instance.costs.pairs
    if instance.fusing_saves:
        classes, slices = ([one.fused for one in part] for part in (instance.classes, instance.slices))
        found[Rule.FUSED] = instance.costs.fused or tuple(classes or slices)
    if not instance.complete:
        found[Rule.ABSENT] = 0
    if not all(all(one.duration[OpKind.F]) for one in instance.class_costs):
        found[Rule.EMPTY] = 0
    if instance.barrier is not None:
        found[Rule.STEP] = instance.step
    if instance.slice_count > 1:
        found[Rule.SLICES] = instance.slice_count
    if instance.differ:
        found[Rule.CLASSES] = len(instance.class_counts)
    if instance.iterations > 1 and instance.flush:
        found[Rule.FLUSHES] = instance.iterations
    if instance.offload is not None:
        found[Rule.OFFLOAD] = instance.offload.memory
    return found


def is_modelled(instance: Instance, *knows: Rule) -> bool:
    """Return whether a solver that `knows` these rules knows all rules of the instance."""
    return rules_of(instance).keys() <= set(knows)


def refuse_unmodelled(solver: str, instance: Instance, *knows: Rule) -> None:
    """Raise an InputError, with entry and remedy, if the instance has a rule that a solver does not know."""
    for rule, value in rules_of(instance).items():
        if rule not in knows:
            key = "pairs" if value is instance.costs.pairs else rule.value
            raise InputError(f"{solver} {_INSTEAD[rule]}", key=key, value=value)


Member = tuple[int, int]  # class of microbatches, stage
Word = list[int]  # the queue of each operation, in the sequence in which the device runs them


@dataclass(frozen=True, slots=True)
class Queue:
    """Operations of one device that run in a fixed sequence among themselves."""

    device: int
    kind: OpKind  #: F, B or W
    members: tuple[Member, ...]  #: one pair for F and B, one or several for W
    count: int  #: number of operations
    duration: int  #: ticks that each operation takes
    delta: int  #: memory that each operation adds; negative where it frees memory


@dataclass(frozen=True, slots=True)
class Queues:
    """All queues of an instance, device after device."""

    instance: Instance
    queues: tuple[Queue, ...]
    index: dict[tuple[OpKind, int, int], int]  #: by kind, class and stage, the queue with these operations
    pooled: bool = True  #: whether W's that cost the same share a queue, as in the graph

    @property
    def arrays(self) -> GraphArrays:
        """The graph of the instance with these queues."""
        return arrays_of(self.instance) if self.pooled else arrays_without_pools(self.instance)

    def on(self, device: int) -> list[int]:
        """Return the indices of the queues of `device`."""
        first, end = (
            bisect_left(self.queues, d, key=lambda queue: queue.device) for d in (device, device + 1)
        )
        return list(range(first, end))

    def backwards_of(self, q: int) -> list[int]:
        """Return the indices of the queues of the B's that the W's in queue `q` belong to."""
        return [self.index[OpKind.B, c, s] for c, s in self.queues[q].members]

    def precedences(self) -> list[tuple[int, int, int]]:
        """Return triples (q, r, lag), each of which says that the items of queue r wait for those of queue q.

        The k-th item of r starts `lag` or more ticks after the k-th of q ends. Pools have other rules.
        """
        graph = graph_of(self.instance)
        of = [self.index[node.kind, node.mb_class, node.stage] for node in graph.nodes]
        edges = ((of[edge.before], of[edge.after], edge.lag) for edge in graph.edges)
        return [(q, r, lag) for q, r, lag in edges if len(self.queues[r].members) == 1]

    def links(self) -> list[list[tuple[int, int, int]]]:
        """Return, for each link on which a message may have to wait, its triples of `precedences`."""
        arrays = self.arrays
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(arrays.links)]
        for q, queue in enumerate(arrays.queues):
            if queue["link"] >= 0:
                found[queue["link"]].append((q, int(queue["receiver"]), int(queue["travel"])))
        return found


def pairs_of(instance: Instance) -> int:
    """Return the number of pairs of operations that share a device."""
    operations = 3 * instance.stages * instance.units
    return instance.devices * comb(operations // instance.devices, 2)


@lru_cache(maxsize=16)
def queues_of(instance: Instance, pooled: bool = True) -> Queues:
    """Return the queues of `instance`; without pools, if `pooled` is false."""
    graph = graph_of(instance)
    found = []
    for nodes in graph.queues if pooled else ((v,) for v in range(len(graph.nodes))):
        first, count = graph.nodes[nodes[0]], sum(graph.nodes[v].count for v in nodes)
        members = tuple((graph.nodes[v].mb_class, graph.nodes[v].stage) for v in nodes)
        found.append(Queue(first.device, first.kind, members, count, first.duration, first.delta))
    index = {(queue.kind, c, s): q for q, queue in enumerate(found) for c, s in queue.members}
    return Queues(instance, tuple(found), index, pooled)


class Tokens(NamedTuple):
    """The words of all p devices as one array of N items, without copies, with what runs together."""

    word: Ints  # (N,) queue of each item, device after device
    joined: Ints  # (N,) how each item runs with the next one: `SINGLE`, `FUSED` or `PAIRED`
    offsets: Ints  # (p + 1,) the items of device d are offsets[d] to offsets[d + 1] - 1


def words_of(queues: Queues, order: Order) -> list[Word]:
    """Return the word of each device, in which a fused backward becomes a B and a W."""
    tokens = tokens_of(queues, order)
    numbers = tokens.word.tolist()
    return [numbers[a:b] for a, b in pairwise(tokens.offsets.tolist())]


def tokens_of(queues: Queues, order: Order) -> Tokens:
    """Return the words of an order, and what runs together in it.

    Where no joint operation is shorter than its operations one after the other, all are single. An F and a
    backward of a pair are single where the pair has no time of its own. Copies are left out.
    """
    graph, order = queues.arrays, order.without_copies()
    kind, stage, microbatch = order.operations.T
    fused = kind == OpKind.BW
    copies = np.where(fused, 2, 1)
    ends = np.cumsum(copies)
    split = np.repeat(np.where(fused, OpKind.B, kind), copies)
    split[ends[fused] - 1] = OpKind.W  # of the two copies of a BW, the second is the W
    joined = np.full(len(split), SINGLE)
    if graph_of(queues.instance).joint:
        joined[ends[fused] - 2] = FUSED
        if queues.instance.has_pairs:
            (first,) = np.nonzero(order.pairs)
            joined[ends[first[fused[first + 1]]] - 1] = PAIRED
    mb_class = graph.mb_class[np.repeat(microbatch, copies)]
    word = graph.nodes["queue"][graph.node[split, mb_class, np.repeat(stage, copies)]]
    return Tokens(word, joined, np.concatenate([[0], ends])[order.offsets])


def starts_of(queues: Queues, schedule: Schedule) -> list[int]:
    """Return the start of each item in ticks, for a schedule whose backwards are split."""
    word = tokens_of(queues, schedule.order).word
    starts: list[int] = schedule.start[np.argsort(word, kind="stable")].tolist()
    return starts


def order_of_words(queues: Queues, words: Sequence[Sequence[int]]) -> Order:
    """Return the order that words without joint operations stand for."""
    word = np.concatenate([np.asarray(each, np.int64) for each in words])
    return order_of_tokens(queues, Tokens(word, np.full(len(word), SINGLE), np.cumsum([0, *map(len, words)])))


def order_of_tokens(queues: Queues, tokens: Tokens, copied: Copied = NO_COPIES) -> Order:
    """Return the order that words stand for, with the microbatches in sequence within each queue.

    The W of a fused backward belongs to its B, every other W to the first single B of its pool without a W.
    `copied` has the copies that stand in the words.
    """
    graph, (word, joined, offsets) = queues.arrays, tokens
    role = graph.queues["kind"][word]  # of a W without B that of a B
    first = np.searchsorted(graph.nodes["queue"], np.arange(len(graph.queues)))  # a node of each queue
    node = graph.nodes[first[word]]
    kind, stage, microbatch = node["kind"].copy(), node["stage"].copy(), np.zeros(len(word), np.int64)
    weights, others = np.flatnonzero(role == OpKind.W), np.flatnonzero(role != OpKind.W)
    own = units_of(graph)
    microbatch[others] = own[node["mb_class"][others], ranks(word[others])]
    follows = np.append(False, joined[:-1] == FUSED)
    own_weight = graph.node[OpKind.W, node["mb_class"], node["stage"]]
    splits = (kind == OpKind.B) & (joined != FUSED) & (own_weight >= 0)
    weights, backwards = weights[~follows[weights]], np.flatnonzero(splits)
    pools = graph.nodes["queue"][own_weight]
    # A pool lies on one device, so its B's and its W's stand in the sequence of the device's word.
    weights = weights[np.argsort(word[weights], kind="stable")]
    backwards = backwards[np.argsort(pools[backwards], kind="stable")]
    stage[weights], microbatch[weights] = stage[backwards], microbatch[backwards]
    operations = np.stack([kind, stage, microbatch], axis=1)
    if len(copied.place):
        operations = np.insert(operations, copied.place, rows_of(queues.instance, copied.item), axis=0)
        joined = np.insert(joined, copied.place, SINGLE)
        offsets = offsets + np.searchsorted(copied.place, offsets)
    return Order.from_tokens(operations, joined, offsets)


def turns(queues: Queues) -> list[int]:
    """Return for each queue a number that puts items which start at the same time in a possible sequence.

    Items of empty stages take no time, and come before others that start then: first F's along the model,
    then B's back. So none comes before what it waits for.
    """
    stages, found = queues.instance.stages, []
    for queue in queues.queues:
        (_, stage), *_ = queue.members
        along = stage - stages if queue.kind is OpKind.F else -stage
        found.append(0 if queue.duration else along - (2 * stages if queue.kind is OpKind.F else 1))
    return found
