"""The bound by what comes before and after the work of a device, for any graph of a step."""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter

from tightpipe.core.graph import Edge, StepGraph, graph_of
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.result import Bound


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
    paths = _paths(instance)
    value, argument = max(_work(instance, paths), _path(instance, paths))
    return Bound(value, "ends", argument, perf_counter() - begun)


def _work(instance: Instance, paths: tuple[list[int], list[int]]) -> tuple[int, str]:
    graph, (head, tail) = graph_of(instance), paths
    found = []
    for device in range(instance.devices):
        nodes = [v for v, node in enumerate(graph.nodes) if node.device == device]
        before, after = min(head[v] for v in nodes), min(tail[v] for v in nodes)
        if not instance.whole:
            before = after = 0
        work = instance.work(device)
        text = f"device {device} works {work} ticks, {before} after the begin and {after} before the end"
        found.append((before + work + after, text))
    return max(found)


def _path(instance: Instance, paths: tuple[list[int], list[int]]) -> tuple[int, str]:
    graph, (head, tail), least = graph_of(instance), paths, _least_times(instance)
    if instance.whole:
        value = max(head[v] + least[v] + tail[v] for v in range(len(graph.nodes)))
        return value, f"one microbatch takes {value} ticks through all stages and back"
    value, device = max(
        (_there_and_back(graph, least, v), -node.device) for v, node in enumerate(graph.nodes)
    )
    return value, f"one microbatch takes {value} ticks from device {-device} back to it"


def _there_and_back(graph: StepGraph, least: list[int], source: int) -> int:
    """Return the ticks from the start of an operation to the last end on its device on a path from it."""
    end = {source: least[source]}
    for edge in _sorted_edges(graph):
        if edge.before in end:
            there = end[edge.before] + edge.lag + least[edge.after]
            end[edge.after] = max(end.get(edge.after, 0), there)
    return max(ticks for v, ticks in end.items() if graph.nodes[v].device == graph.nodes[source].device)


@lru_cache(maxsize=64)
def _paths(instance: Instance) -> tuple[list[int], list[int]]:
    """Return for each node the least ticks before the start and after the end of each of its operations."""
    graph, least = graph_of(instance), _least_times(instance)
    head = [node.ready for node in graph.nodes]
    tail = [node.reduce + graph.optimizer[node.device] for node in graph.nodes]
    edges = _sorted_edges(graph)
    for edge in edges:
        there = head[edge.before] + least[edge.before] + edge.lag
        head[edge.after] = max(head[edge.after], there)
    for edge in reversed(edges):
        there = edge.lag + least[edge.after] + tail[edge.after]
        tail[edge.before] = max(tail[edge.before], there)
    return head, tail


@lru_cache(maxsize=64)
def _least_times(instance: Instance) -> list[int]:
    """Return the least ticks that an operation of each node adds to a path."""
    graph = graph_of(instance)
    alone = [node.duration for node in graph.nodes]
    paired = [graph.paired[node.device] for node in graph.nodes]
    least = [ticks if pair is None else min(ticks, pair) for ticks, pair in zip(alone, paired, strict=True)]
    for edge in graph.edges:
        pair = paired[edge.after]
        own = graph.nodes[edge.before].kind is OpKind.B and graph.nodes[edge.after].kind is OpKind.W
        if own and pair is not None and graph.nodes[edge.before].stage == graph.nodes[edge.after].stage:
            both = alone[edge.before] + alone[edge.after]
            least[edge.after] = min(both, pair) - least[edge.before]
    return least


def _sorted_edges(graph: StepGraph) -> list[Edge]:
    """Return the edges in a sequence in which those to a node come before those from it."""

    def place(edge: Edge) -> int:
        before = graph.nodes[edge.before]
        return before.stage if before.kind is OpKind.F else -before.stage

    forward = [edge for edge in graph.edges if graph.nodes[edge.before].kind is OpKind.F]
    backward = [edge for edge in graph.edges if graph.nodes[edge.before].kind is OpKind.B]
    return sorted(forward, key=place) + sorted(backward, key=place)
