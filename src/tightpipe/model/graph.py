"""A training step as a graph that repeats for every microbatch: what runs where, and what waits for what.

Most of what searches, bounds and the simulator know about an instance comes from this graph. It is made by
one function, so that a rule of the model is written once. Some code reads the instance itself: the validator
and the proof checker, because they are there to find errors in everything else; the plain model of CP-SAT,
because it does without queues; and the formulas `paths`, `ramps` and `two times`, because they
are about stages.

A *node* stands for operations that are alike: those of one kind at one stage, for all units of one class,
which are microbatches, or one slice of each of them. Units of one class take the same devices, times and
memory (`Instance.mb_class`). The k-th operation of a node belongs to the k-th unit of its class. The k-th
units of the classes of all slices are those of one microbatch.

An *edge* says that the k-th operation of a node starts at least some ticks after the end of the k-th
operation of another node. An edge between two devices carries a message. The edges between the slices of a
microbatch lie within a device and have no lag, so they constrain the sequence of its operations only.

*Copies* stand beside the nodes. Where an instance has `offload`, a part of what an F keeps on its device may
be copied out and back before its backward, on copy engines of the device, or it may stay: for each unit and
each stage, that is a decision.

*Joint operations* run as one, in a time of their own: a B with the W of its microbatch (a fused backward,
BW), and an F with a B or BW of the same device (a pair).

Some cheapest schedule runs every node *first in, first out*. Take any schedule, and class by class let the
k-th operation of each node in time belong to the k-th unit of the class. Nothing moves, and the
operations of a node take equal times and memory, so every device works and holds what it did. Nothing begins
too early either. Let the operations of one node wait for those of another one, of the class or of another
slice of the same microbatches. Before the renaming, the first k to wait had waited for k different ones. All
of these had ended, `lag` ticks before the k-th to wait began, so the k-th of that node had, too. Which class
comes next on a device stays open: between microbatches that differ, the sequence is a decision.

This holds for schedules without copies. The copies of a unit run between its F and its backward, and after
the renaming there may be no unit between whose F and backward they run. With copies, first in, first out is a
restriction: searches keep to it, and no bound may rely on it.

Some nodes share a *queue*. W's of one device that cost the same are alike whatever their stage and class: the
l-th of them to run may take the l-th B of these stages. Their nodes share a queue, which is called a *pool*
if it has several nodes. W's are not alike if the stage is reduced after the last of them, or if the stage has
no B, so that they wait for what a B would wait for. A W without B is an operation like a B in all but its
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple

from .instance import Instance
from .operation import OpKind

NO_LIMIT = 2**62
"""The memory limit of a device that has none, and larger than any sum of memory or of ticks."""


class Node(NamedTuple):
    """The operations of one kind at one stage, for the units of one class.

    - `kind`, `stage`, `mb_class`, `device`: F, B or W; stage and class by number; the device that runs them.
    - `count`: their number, which is the number of units of the class.
    - `duration`: ticks that each of them takes.
    - `delta`: memory that each of them adds; negative where it frees memory, at its end.
    - `fused`: ticks that a B takes together with its W, as a BW; 0 at an F or a W, and where B has no W.
    - `passing`: memory that each of them takes at its start and frees at its end.
    - `ready`: tick before which none of them starts.
    - `reduce`: ticks for which a device reduces the gradients of the stage after the last operations of all
      classes at the stage; 0 but at the last node of each class.
    """

    kind: OpKind
    stage: int
    mb_class: int
    device: int
    count: int  # type: ignore[assignment]  # in place of the method of tuples
    duration: int
    delta: int
    fused: int
    passing: int = 0
    ready: int = 0
    reduce: int = 0


class Edge(NamedTuple):
    """The k-th operation of `after` starts at least `lag` ticks after the end of the k-th of `before`."""

    before: int
    after: int
    lag: int


class Copy(NamedTuple):
    """What may leave a device between the F's and the backwards of one class at a stage.

    For each unit of the class a schedule may copy `memory` out, after the F and before the backward, and then
    back. A copy out frees the memory at its end, a copy back takes it at its start.

    - `stage`, `mb_class`, `device`: as in `Node`.
    - `forward`, `backward`: node of the F's, and of the operations that wait for the gradient: B's, or W's
      without B.
    - `memory`: what leaves, at least 1.
    - `out`, `back`: ticks of the copies, at least 1.
    """

    stage: int
    mb_class: int
    device: int
    forward: int
    backward: int
    memory: int
    out: int
    back: int


@dataclass(frozen=True, slots=True)
class StepGraph:
    """The graph of an instance.

    - `nodes`: the nodes. Those of one device are neighbours: first its F's, then its B's, then its W's, each
      in the sequence of classes and stages, but W's that cost the same are neighbours.
    - `edges`: for each class, those between F's and B's along the model; then those between the slices of
      microbatches; then those from each B to its W.
    - `queues`: the nodes of each queue: one node, or all W nodes of a device that cost the same. The nodes of
      a queue are neighbours, and the queues are in the sequence of the nodes.
    - `limits`: memory limit of each device, `NO_LIMIT` where there is none.
    - `pairs`: ticks of an F of one node that runs together with a BW, whose B is of another node of the
      device. A pair that is not there takes the sum of the two.
    - `optimizer`: ticks that the optimizer of each device takes after the device's last operation and
      reduction.
    - `classes`: the class of each unit.
    - `least`: ticks that an operation of each node adds to a path at least, alone or in a joint operation.
      Those of a B and of its W sum to the least time of both.
    - `links`: the edges of each link, from one device to another, on which a message may have to wait.
    - `joint`: whether some joint operation may be shorter than its operations one after the other. A fused
      backward that is not shorter is never needed: one right after the other, the B frees its memory and its
      successors earlier.
    - `copies`: what may leave a device, in the sequence of classes and stages; empty where nothing may.
    - `duplex`: whether a device copies out and back at the same time; if not, it runs one copy at a time.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    queues: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]
    pairs: dict[tuple[int, int], int]
    optimizer: tuple[int, ...]
    classes: tuple[int, ...]
    least: tuple[int, ...]
    links: tuple[tuple[Edge, ...], ...]
    joint: bool
    copies: tuple[Copy, ...]
    duplex: bool


@lru_cache(maxsize=64)
def graph_of(instance: Instance) -> StepGraph:
    """Return the graph of an instance."""
    held: list[list[tuple[int, int]]] = [[] for _ in range(instance.devices)]
    for mb_class, route in enumerate(instance.class_routes):
        for stage, device in enumerate(route):
            held[device].append((mb_class, stage))
    nodes, queues = _nodes_and_queues(instance, held)
    index = {(node.kind, node.mb_class, node.stage): v for v, node in enumerate(nodes)}
    step = instance.barrier
    limits = (instance.memory_limit(device) for device in range(instance.devices))
    edges, pairs = tuple(_edges(instance, nodes, index)), _pairs(instance, nodes)
    least = _least(nodes, edges, pairs)
    return StepGraph(
        nodes=tuple(nodes),
        edges=edges,
        queues=tuple(queues),
        limits=tuple(NO_LIMIT if limit is None else limit for limit in limits),
        pairs=pairs,
        optimizer=(0,) * instance.devices if step is None else step.optimizer,  # type: ignore[arg-type]
        classes=tuple(map(instance.mb_class, range(instance.units))),
        least=least,
        links=tuple(_links(nodes, edges, pairs, least, instance.costs.link_occupancy)),
        joint=instance.fusing_saves or bool(pairs),
        copies=tuple(_copies(instance, index)),
        duplex=instance.offload is None or instance.offload.duplex,
    )


def is_wide(instance: Instance) -> bool:
    """Return whether joint operations may be shorter, microbatches differ or something may be copied."""
    return graph_of(instance).joint or instance.differ or instance.offload is not None


def _copies(instance: Instance, index: dict[tuple[OpKind, int, int], int]) -> Iterator[Copy]:
    for mb_class, route in enumerate(instance.class_routes):
        for stage, device in enumerate(route):
            if instance.offloads(stage):
                w = index.get((OpKind.W, mb_class, stage), -1)  # a stage with copies has a B or a W
                yield Copy(
                    stage,
                    mb_class,
                    device,
                    index[OpKind.F, mb_class, stage],
                    index.get((OpKind.B, mb_class, stage), w),
                    instance.leaves(stage),
                    instance.duration(OpKind.O, stage),
                    instance.duration(OpKind.L, stage),
                )


def _pairs(instance: Instance, nodes: list[Node]) -> dict[tuple[int, int], int]:
    """Return the ticks of an F and a BW of one device that have a time of their own together."""
    if not instance.has_pairs:
        return {}
    found = {}
    for device in range(instance.devices):
        held = [v for v, node in enumerate(nodes) if node.device == device]
        forward = [v for v in held if nodes[v].kind is OpKind.F]
        for f, b in product(forward, [v for v in held if nodes[v].fused]):
            ticks = instance.together(device, nodes[f].stage, nodes[b].stage)
            assert ticks is not None
            found[f, b] = ticks
    return found


def _least(nodes: list[Node], edges: tuple[Edge, ...], pairs: dict[tuple[int, int], int]) -> tuple[int, ...]:
    """Return the ticks that an operation of each node adds to a path at least."""
    joint = [node.fused or NO_LIMIT for node in nodes]
    for pair, ticks in pairs.items():
        for v in pair:
            joint[v] = min(joint[v], ticks)
    least = [min(node.duration, ticks) for node, ticks in zip(nodes, joint, strict=True)]
    for b, w, _ in edges:
        if (nodes[b].kind, nodes[w].kind) == (OpKind.B, OpKind.W) and nodes[b].stage == nodes[w].stage:
            least[w] = min(nodes[b].duration + nodes[w].duration, joint[b]) - least[b]
    return tuple(least)


def _links(
    nodes: list[Node],
    edges: tuple[Edge, ...],
    pairs: dict[tuple[int, int], int],
    least: tuple[int, ...],
    occupancy: int,
) -> Iterator[tuple[Edge, ...]]:
    """Yield the edges of each link on which a message may have to wait, in the sequence of their first edges.

    The operations of a device end at least the ticks apart that the later one takes, unless they run as a
    pair. So if none that sends over a link may take less than the link occupancy, and no two of them may run
    as a pair, the link is always free again before the next message.
    """
    found: dict[tuple[int, int], list[Edge]] = {}
    for edge in edges if occupancy else ():
        ends = nodes[edge.before].device, nodes[edge.after].device
        if ends[0] != ends[1]:
            found.setdefault(ends, []).append(edge)
    for link in found.values():
        senders = {edge.before for edge in link}
        if min(least[v] for v in senders) < occupancy or any(senders.issuperset(pair) for pair in pairs):
            yield tuple(link)


def _nodes_and_queues(
    instance: Instance, held: list[list[tuple[int, int]]]
) -> tuple[list[Node], list[tuple[int, ...]]]:
    """Return the nodes and the queues; `held` has class and stage of all that each device runs."""
    nodes: list[Node] = []
    queues: list[tuple[int, ...]] = []
    step = instance.barrier
    ready, reduce = ((0,) * instance.stages,) * 2 if step is None else (step.ready, step.reduce)
    costs = [(one.duration, one.delta, one.passing) for one in instance.class_costs]
    has = [one.has for one in instance.class_costs]

    def add(kind: OpKind, device: int, mb_class: int, stage: int) -> int:
        duration, delta, passing = costs[mb_class]
        b, w = (has[mb_class](kind, stage) for kind in (OpKind.B, OpKind.W))
        first = kind is OpKind.F
        last = kind is (OpKind.W if w else OpKind.B if b else OpKind.F)
        nodes.append(
            Node(
                kind,
                stage,
                mb_class,
                device,
                instance.class_counts[mb_class],
                duration[kind][stage],
                delta[kind][stage],
                duration[OpKind.BW][stage] if kind is OpKind.B and w else 0,
                passing[stage] if first else 0,
                ready[stage] if first else 0,  # type: ignore[index]
                reduce[stage] if last else 0,  # type: ignore[index]
            )
        )
        return len(nodes) - 1

    for device, stages in enumerate(held):
        for kind in (OpKind.F, OpKind.B):
            queues += [(add(kind, device, c, s),) for c, s in stages if has[c](kind, s)]
        pools: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for mb_class, stage in stages:
            duration, delta, _ = costs[mb_class]
            if duration[OpKind.W][stage]:
                alike = duration[OpKind.B][stage] and not reduce[stage]  # type: ignore[index]
                key = duration[OpKind.W][stage], delta[OpKind.W][stage]
                pools.setdefault(key if alike else (*key, mb_class, stage), []).append((mb_class, stage))
        queues += [tuple(add(OpKind.W, device, *one) for one in pool) for pool in pools.values()]
    return nodes, queues


def _edges(
    instance: Instance, nodes: list[Node], index: dict[tuple[OpKind, int, int], int]
) -> Iterator[Edge]:
    last = instance.stages - 1

    def backward(r: int, s: int) -> int | None:
        """Return the node that waits for the gradient at a stage, B or a W without B; None without both."""
        return index.get((OpKind.B, r, s), index.get((OpKind.W, r, s)))

    ends = instance.slice_count - 1
    for r, (route, j) in enumerate(zip(instance.class_routes, instance.class_slices, strict=True)):
        for s, (here, there) in enumerate(pairwise(route)):
            yield Edge(index[OpKind.F, r, s], index[OpKind.F, r, s + 1], instance.comm(here, there))
            after = backward(r, s)
            if after is not None:  # then the next stage has a B
                yield Edge(index[OpKind.B, r, s + 1], after, instance.comm(there, here))
        first = backward(r, last)
        if first is not None and j == ends:  # where others wait for the B's of later slices
            yield Edge(index[OpKind.F, r, last], first, 0)
    slices = pairwise(range(len(instance.class_routes)))
    for c, d in slices if ends else ():
        if instance.class_slices[d] == 0:  # `c` is the last slice on another route
            continue
        for s in range(instance.stages):
            yield Edge(index[OpKind.F, c, s], index[OpKind.F, d, s], 0)
            earlier, later = backward(c, s), backward(d, s)
            if earlier is not None and later is not None:  # the slices have the same operations
                yield Edge(later, earlier, 0)
    for v, node in enumerate(nodes):
        before = index.get((OpKind.B, node.mb_class, node.stage))
        if node.kind is OpKind.W and before is not None:
            yield Edge(before, v, 0)
