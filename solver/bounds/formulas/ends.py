"""The bounds `ends` and `splits`, for any graph of a step: what comes before and after the work of a device.

The bound `ends` is about the work of a device and the least times around it. The bound `splits` also counts
what it costs to split a backward, and what it costs not to split it. Where nothing is fused, it says that a
device cannot have the same W's both between its last F and its last B and after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from time import perf_counter
from typing import NamedTuple

from tightpipe.model.graph import NO_LIMIT, Edge, Node, graph_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound

from ..relaxed import without_copies
from .frames import Frame, frames, longest_path, sorted_edges
from .ramps import holds_all, most_forwards, most_held


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
    value, device = longest_path(instance)
    if device is None:
        return value, f"one microbatch takes {value} ticks through all stages and back"
    return value, f"one microbatch takes {value} ticks from device {device} back to it"


def splits_bound(instance: Instance) -> Bound:
    """Bound the cost over the number of backwards that a device splits.

    Notes
    -----
    Take a device, the worker, and a frame: an interval of length T = cost in which all operations of some
    device lie. In a makespan or a step all devices share one frame, with their reductions and optimizers.

    - No backward starts on the worker before t1, counted from the start of the frame: a path of the same
      microbatch leads there. Until then the worker only runs F's, which fit into its memory together.
    - All its F's, B's and fused backwards have ended by t3 = T - v, as from each of them another path leads
      to the end of the frame. After t3 the worker only runs W's of backwards that are split, say y of them.

    Let `work` be the least work of the worker. A backward of b and w ticks that takes u ticks fused adds
    d = max(0, b + w - u) to that where it is split. So the y backwards add D or more, the sum of the y least
    d, and all but G of the work lies before t3, where G is the sum of the y largest w - d. Hence

        T >= t1 + work - (the most before t1) - G + v.

    The splits have to run in a frame of the worker itself, too. With t1 of that frame and z for what comes
    after the last operation of the worker in it,

        T >= t1 + work - (the most before t1) + D + z.

    To both adds how long the worker waits between its last F and its last backward. They are x apart or more,
    by a path of the microbatch of that F. In between, only backwards and W's of microbatches run that the
    worker holds when that F ends. Let H be the most work of these (`most_held`). The y W's are not among it,
    so the worker waits for x - H + (the sum of the y least w - d) or more. Splits in between bring in no more
    than they add. If the worker has memory for all its F's, nothing is added, as the two waits might overlap.

    All of that holds for the y of a schedule. The bound is the least over all y of the larger right-hand
    side. Memory limits y: until the last F, B or fused backward of the worker ends, it holds all that the F
    of the same microbatch has taken there, and the memory of the y W's, of which at most one is of the same
    microbatch.

    What may leave the device takes no memory before t1. The rest is as without copies: what a backward needs
    is back before it starts, and nothing leaves once it has ended.

    On paths every operation takes its least time: a B that of B, of BW or of a pair. A split backward is in
    no pair. So at most N - y of N backwards are, and pairs save no more than the N - y largest savings.
    """
    begun = perf_counter()
    found = [_least_cost(instance, device) for device in range(instance.devices)]
    value, splits = max(found, key=lambda least: least.cost)
    device = found.index(_Least(value, splits))
    argument = (
        f"device {device} works {works(instance)[device]} ticks, and with {splits} W's after its last B, its "
        f"idle time and what splits add take {value - works(instance)[device]} more"
    )
    return Bound(value, "splits", argument, perf_counter() - begun)


class _Least(NamedTuple):
    """The least cost that the argument leaves for a worker, and with how many splits."""

    cost: int
    splits: int


@dataclass(frozen=True, slots=True)
class _Splits:
    """What y splits of a worker take and give at most, for y = 0, 1 and so on."""

    added: list[int]  #: the least work that y splits add, D and what they keep pairs from saving
    moved: list[int]  #: the most work that they allow after t3, G less what they keep pairs from saving
    waits: list[int]  #: how long the worker waits at least between its last F and its last backward


def _least_cost(instance: Instance, device: int) -> _Least:
    graph = graph_of(instance)
    nodes = {v: node for v, node in enumerate(graph.nodes) if node.device == device}
    weights = {v: (node.stage, node.mb_class) for v, node in nodes.items() if node.kind is OpKind.W}
    own = {v for v, at in weights.items() if instance.has(OpKind.B, *at)}
    edges = [edge for edge in graph.edges if edge.before in nodes]
    work, held = works(instance)[device], most_forwards(without_copies(instance), device)
    begins, until_t3 = [], -NO_LIMIT
    for frame in frames(instance):
        begins.append(_until_first_backward(nodes, frame, held) + work)
        until_t3 = max(until_t3, begins[-1] + _after_backwards(nodes, own, edges, graph.least, frame))
    in_own_frame = begins[0 if instance.whole else device] + _after_all(instance, device)
    splits = _splits(instance, [nodes[v] for v in own], device)
    costs = [
        max(until_t3 - moved, in_own_frame + added) + waits
        for added, moved, waits in zip(splits.added, splits.moved, splits.waits, strict=True)
    ]
    return _Least(min(costs), costs.index(min(costs)))


def _until_first_backward(nodes: dict[int, Node], frame: Frame, held: int) -> int:
    """Return t1 less the most work before t1, for a worker that can hold F's of `held` ticks."""
    first_f = min(frame.head[v] for v, node in nodes.items() if node.kind is OpKind.F)
    others = (frame.head[v] for v, node in nodes.items() if node.kind is not OpKind.F)
    first_b = min(others, default=first_f)
    return first_b - min(held, first_b - first_f)


def _after_backwards(
    nodes: dict[int, Node], own: set[int], edges: list[Edge], least: tuple[int, ...], frame: Frame
) -> int:
    """Return v, the least ticks from the worker's last F, B or fused backward to the end of the frame.

    `own` has the nodes of the W's that belong to a B. Such a W ends with a fused backward.
    """
    after = {v: -NO_LIMIT if node.fused else frame.tail[v] for v, node in nodes.items() if v not in own}
    for edge in edges:
        if edge.before in after and nodes[edge.before].fused:
            there = edge.lag + (0 if edge.after in own else least[edge.after]) + frame.tail[edge.after]
            after[edge.before] = max(after[edge.before], there)
    return min(after.values())


def _alone(instance: Instance, device: int) -> int:
    """Return how long the worker waits at least between its last F and its last backward, if no W is later.

    The result is negative by how much more the worker has to do than there is time.
    """
    resident, graph = without_copies(instance), graph_of(instance)
    if holds_all(resident, device):
        return -NO_LIMIT
    until = [0 if node.device == device and node.kind is OpKind.B else -NO_LIMIT for node in graph.nodes]
    for edge in reversed(sorted_edges(instance)):
        until[edge.before] = max(until[edge.before], edge.lag + graph.least[edge.after] + until[edge.after])
    here = [t for t, v in zip(until, graph.nodes, strict=True) if v.device == device and v.kind is OpKind.F]
    return min(here) - most_held(resident, device)


def _after_all(instance: Instance, device: int) -> int:
    """Return z, the least ticks from the end of the last operation of the worker to the end of its frame."""
    graph, stages = graph_of(instance), instance.placement.stages_on(device)
    step = instance.barrier
    if step is None:
        return 0
    return graph.optimizer[device] + min(step.reduce[s] for s in stages)  # type: ignore[index]


def _splits(instance: Instance, weights: list[Node], device: int) -> _Splits:
    counts = [v.count for v in weights]
    at = [(v.stage, v.mb_class) for v in weights]
    extra = [
        instance.duration(OpKind.B, *where) + v.duration - instance.least_backward(*where)
        for v, where in zip(weights, at, strict=True)
    ]
    gain = sorted(_repeated((max(0, v.duration - d) for v, d in zip(weights, extra, strict=True)), counts))
    most = min(sum(counts), _most_pending(instance, weights, device))
    added = _sums(sorted(_repeated(extra, counts)), most)
    moved = _sums(gain[::-1], most)
    alone = _alone(instance, device)
    lost = _sums(sorted(instance.pair_savings(device)), most)
    return _Splits(
        [a + x for a, x in zip(added, lost, strict=True)],
        [m - x for m, x in zip(moved, lost, strict=True)],
        [max(0, alone + least) for least in _sums(gain, most)],
    )


def _most_pending(instance: Instance, weights: list[Node], device: int) -> int:
    """Return how many W's are left at most when the last F, B or fused backward of a device has ended."""
    graph = graph_of(instance)
    pending = min((-v.delta for v in weights), default=0)
    last = min(v.delta + v.passing for v in graph.nodes if v.device == device and v.kind is OpKind.F)
    return 1 + max(0, graph.limits[device] - last) // pending if pending else NO_LIMIT


def _repeated(values: Iterable[int], counts: Iterable[int]) -> list[int]:
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]


def _sums(values: list[int], most: int) -> list[int]:
    """Return the sums of the first y values for y from 0 to `most`."""
    return list(accumulate(values[:most], initial=0))
