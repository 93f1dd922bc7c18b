"""Least ticks between operations and the ends of a frame, by the longest paths through the graph of a step.

All operations of a path belong to one microbatch, and to several of its slices where it has them. An F of
slice j waits for F of slice j - 1 at the same stage, and the first B of a microbatch for all its F's at the
last stage. So of k slices, a path from the first F of a device to its first B is k - 1 F's longer than that
of a slice alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tightpipe.model.graph import NO_LIMIT, Edge, graph_of
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind


class Frame(NamedTuple):
    """Least ticks between the operations of each node and the two ends of a frame.

    A frame is an interval as long as the cost, in which all operations of one device lie, or those of all
    devices with what a step takes around them. The ticks are very negative where nothing is known.
    """

    head: list[int]  #: from the start of the frame to the start of an operation
    tail: list[int]  #: from the end of an operation to the end of the frame


@lru_cache(maxsize=64)
def frames(instance: Instance) -> tuple[Frame, ...]:
    """Return the frame of all devices together, or with the objective `device_span` that of each device."""
    return tuple(_frame(instance, d) for d in ([None] if instance.whole else range(instance.devices)))


def longest_path(instance: Instance) -> tuple[int, int | None]:
    """Return the ticks of the longest path within a frame, and the device of this frame, None for all."""
    least = graph_of(instance).least
    through = [max(map(sum, zip(head, least, tail, strict=True))) for head, tail in frames(instance)]
    value = max(through)
    return value, None if instance.whole else through.index(value)


def _frame(instance: Instance, device: int | None) -> Frame:
    graph = graph_of(instance)
    least = graph.least
    inside = [device in (None, node.device) for node in graph.nodes]
    ends = [node.reduce + graph.optimizer[node.device] for node in graph.nodes]
    head = [node.ready if is_in else -NO_LIMIT for node, is_in in zip(graph.nodes, inside, strict=True)]
    tail = [end if is_in else -NO_LIMIT for end, is_in in zip(ends, inside, strict=True)]
    edges = sorted_edges(instance)
    for edge in edges:
        there = head[edge.before] + least[edge.before] + edge.lag
        head[edge.after] = max(head[edge.after], there)
    for edge in reversed(edges):
        there = edge.lag + least[edge.after] + tail[edge.after]
        tail[edge.before] = max(tail[edge.before], there)
    return Frame(head, tail)


@lru_cache(maxsize=8)
def sorted_edges(instance: Instance) -> list[Edge]:
    """Return the edges in a sequence in which those to a node come before those from it."""
    graph, slices = graph_of(instance), instance.class_slices

    def place(edge: Edge) -> tuple[bool, int, int]:
        before = graph.nodes[edge.before]
        at = before.stage, slices[before.mb_class]
        return (False, *at) if before.kind is OpKind.F else (True, -at[0], -at[1])

    return sorted(graph.edges, key=place)
