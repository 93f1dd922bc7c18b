"""The bound by what comes before and after the work of a device, for any graph of a step."""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter
from typing import NamedTuple

from tightpipe.model.graph import NO_LIMIT, Edge, StepGraph, graph_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound


class Frame(NamedTuple):
    """Least ticks between the operations of each node and the two ends of a frame.

    A frame is an interval as long as the cost, in which all operations of one device lie, or those of all
    devices with what a step takes around them. The ticks are very negative where nothing is known.
    """

    head: list[int]  #: from the start of the frame to the start of an operation
    tail: list[int]  #: from the end of an operation to the end of the frame


def ends_bound(instance: Instance) -> Bound:
    """Bound the cost by the work of a device and the least times before and after it.

    Notes
    -----
    Before an operation can start, all operations on a path to it in the graph have run, and their stages were
    ready. So the first operation of a device starts no earlier than the least of these times over its nodes.
    After an operation has ended, all operations on a path from it have yet to run, and after them their
    stages are reduced and the optimizers run. So the step ends no earlier after the last operation of a
    device than the least of these times over its nodes. Between the two the device does all its work. With
    the objective `device_span` only the work counts.

    The longest path of a single microbatch, with what comes before and after it, is a bound as well. For
    `device_span` it reaches from one operation of a device to another one of the same device.

    On paths every operation takes its least time, alone or in a pair, and a B with the W after it the least
    time of both. The instance has no fused backwards that are shorter than that.
    """
    begun = perf_counter()
    value, argument = max(_work(instance), _path(instance))
    return Bound(value, "ends", argument, perf_counter() - begun)


def _work(instance: Instance) -> tuple[int, str]:
    graph, found = graph_of(instance), []
    for device in range(instance.devices):
        nodes = [v for v, node in enumerate(graph.nodes) if node.device == device]
        head, tail = frames(instance)[0 if instance.whole else device]
        before, after = min(head[v] for v in nodes), min(tail[v] for v in nodes)
        work = works(instance)[device]
        text = f"device {device} works {work} ticks, {before} after the begin and {after} before the end"
        found.append((before + work + after, text))
    return max(found)


def _path(instance: Instance) -> tuple[int, str]:
    least = least_times(instance)
    through = [max(map(sum, zip(head, least, tail, strict=True))) for head, tail in frames(instance)]
    value = max(through)
    if instance.whole:
        return value, f"one microbatch takes {value} ticks through all stages and back"
    return value, f"one microbatch takes {value} ticks from device {through.index(value)} back to it"


@lru_cache(maxsize=64)
def frames(instance: Instance) -> tuple[Frame, ...]:
    """Return the frame of all devices together, or with the objective `device_span` that of each device."""
    return tuple(_frame(instance, d) for d in ([None] if instance.whole else range(instance.devices)))


def _frame(instance: Instance, device: int | None) -> Frame:
    graph, least = graph_of(instance), least_times(instance)
    inside = [device in (None, node.device) for node in graph.nodes]
    ends = [node.reduce + graph.optimizer[node.device] for node in graph.nodes]
    head = [node.ready if is_in else -NO_LIMIT for node, is_in in zip(graph.nodes, inside, strict=True)]
    tail = [end if is_in else -NO_LIMIT for end, is_in in zip(ends, inside, strict=True)]
    edges = sorted_edges(graph)
    for edge in edges:
        there = head[edge.before] + least[edge.before] + edge.lag
        head[edge.after] = max(head[edge.after], there)
    for edge in reversed(edges):
        there = edge.lag + least[edge.after] + tail[edge.after]
        tail[edge.before] = max(tail[edge.before], there)
    return Frame(head, tail)


@lru_cache(maxsize=64)
def least_times(instance: Instance) -> list[int]:
    """Return the least ticks that an operation of each node adds to a path, alone or in a joint operation.

    Those of a W and of its B sum to the least time of both.
    """
    graph = graph_of(instance)
    pairs = [instance.shortest_pair(node.kind, node.stage, node.device) or NO_LIMIT for node in graph.nodes]
    least = [
        min(node.duration, node.fused or NO_LIMIT, pair)
        for node, pair in zip(graph.nodes, pairs, strict=True)
    ]
    for edge in graph.edges:
        b, w = graph.nodes[edge.before], graph.nodes[edge.after]
        if (b.kind, w.kind) == (OpKind.B, OpKind.W) and b.stage == w.stage:
            both = min(b.duration + w.duration, b.fused, pairs[edge.after])
            least[edge.after] = both - least[edge.before]
    return least


def sorted_edges(graph: StepGraph) -> list[Edge]:
    """Return the edges in a sequence in which those to a node come before those from it."""

    def place(edge: Edge) -> int:
        before = graph.nodes[edge.before]
        return before.stage if before.kind is OpKind.F else -before.stage

    forward = [edge for edge in graph.edges if graph.nodes[edge.before].kind is OpKind.F]
    backward = [edge for edge in graph.edges if graph.nodes[edge.before].kind is OpKind.B]
    return sorted(forward, key=place) + sorted(backward, key=place)
