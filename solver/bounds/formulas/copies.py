"""The bound `copies`: what a device has to hold for how long, less what its copy engines can carry away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from math import ceil
from time import perf_counter
from typing import NamedTuple

from tightpipe.model.graph import NO_LIMIT, Copy, Node, StepGraph, graph_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound

from .ends import Frame, frames, least_times


def copies_bound(instance: Instance) -> Bound:
    """Bound the cost by memory times time on a device, less the most that its copies can take away.

    Notes
    -----
    A frame is an interval of length T = cost in which all operations of a device lie. In a makespan or a step
    all devices share one, with what comes before and after. Paths lead to the first operation of the device
    and from its last one, so it holds something in at most T less the ticks of the shortest such paths. Its
    memory limit times that time is the *room*. Some of it stays empty. In the beginning the device only holds
    what F's have taken, one after another: no more than the largest F takes, and with time the most that any
    F takes per tick. In the end it only holds what backwards have yet to free, one after another. The room
    that these two *ramps* leave empty is taken off, if T is so long that they do not meet.

    Microbatches need room, too, and all that they need has to fit:

    - A microbatch holds the memory f of a stage from the start of F to the end of the backward there, and the
      memory of W from then on until its W has ended. From the end of F to the start of the backward lies a
      path through all later stages, of g ticks. So it *needs* f times the least ticks of F, g, and the ticks
      of the backward, with what it holds during a W of its own. It may fuse the two; the lesser sum counts.
    - If the part m of f leaves, it is away for no longer than the time from F to the backward less the ticks
      of both copies. If that time is g, this *saves* m (g - out - back), or nothing where the copies take
      longer than g. Any longer time adds f per tick to the need, and no more than m <= f to what is saved. So
      the need less what is saved is never less than with g, whatever the schedule.
    - An engine runs one copy at a time. The first copy out follows an F of its frame, and after the last one
      come a copy back and a backward. So the ticks of all copies out fit into T less the shortest of each of
      these paths, and those of all copies back likewise.

    Hence the sum of all needs, less the most that copies save, fits into the room. The most that copies save
    is a knapsack: microbatches at stages with a value, what they save, and a weight, the ticks of the copy
    out, of the copy back, or of both, whose sum fits into the time of the engine, or of both engines. It is
    at most the value of the knapsack in which fractions may be taken, those with the most value per tick
    first. Each of the three is an upper bound, so the least counts. The smaller T, the smaller are the room
    and the knapsack. So the least T for which everything fits is a bound. It supposes nothing about the
    sequence of microbatches or of their copies.
    """
    begun, work = perf_counter(), works(instance)
    away = _away(instance)
    found = [max(ticks, _least_cost(instance, d, away)) for d, ticks in enumerate(work)]
    value = max(found)
    device = found.index(value)
    argument = (
        f"device {device} holds its activations within its memory limit in no less time, whatever its copies "
        "carry away"
    )
    return Bound(value, "copies", argument, perf_counter() - begun)


class _Saving(NamedTuple):
    """What `count` microbatches can save at a stage, each by its two copies."""

    count: int  # type: ignore[assignment]  # in place of the method of tuples
    value: int  #: memory times ticks that each saves at most
    out: int
    back: int


class _Engine(NamedTuple):
    """A knapsack of copies.

    - `savings`: number, value and ticks of each kind of copy, the most value per tick first.
    - `frames`: how many frames of an engine it has.
    - `outside`: ticks of these frames in which no copy runs.
    """

    savings: list[tuple[int, int, int]]
    frames: int
    outside: int

    def most(self, cost: int) -> int:
        """Return the most memory times ticks that copies save in frames of `cost` ticks."""
        left, saved = max(0, self.frames * cost - self.outside), 0
        for count, value, ticks in self.savings:
            taken = min(left, count * ticks)
            if taken < count * ticks:
                return saved + value * taken // ticks
            saved, left = saved + count * value, left - taken
        return saved


def _least_cost(instance: Instance, device: int, away: list[list[int]]) -> int:
    graph = graph_of(instance)
    limit = graph.limits[device]
    if limit >= NO_LIMIT or limit == 0:
        return 0
    frame, least = frames(instance)[0 if instance.whole else device], least_times(instance)
    nodes = {v: node for v, node in enumerate(graph.nodes) if node.device == device}
    outside = min(frame.head[v] for v in nodes) + min(frame.tail[v] for v in nodes)
    need = sum(
        node.count * _need(instance, node, least[v], away[node.mb_class][node.stage])
        for v, node in nodes.items()
        if node.kind is OpKind.F
    )
    copies = [copy for copy in graph.copies if copy.device == device]
    engines = _engines(graph, copies, frame, least, away) if copies else []

    def least_cost(empty: int) -> int:
        """Return the least cost if so much of the room is empty in the ramps."""

        def fits(cost: int) -> bool:
            saved = min((engine.most(cost) for engine in engines), default=0)
            return need + empty - saved <= limit * (cost - outside)

        return _least(fits, outside + (need + empty) // limit + 1)

    value, (ticks, empty) = least_cost(0), _ramps(instance, nodes, least, limit)
    return least_cost(empty) if value >= outside + ticks else value


def _least(fits: Callable[[int], bool], most: int) -> int:
    """Return the least number from 0 to `most` that fits, if every number above one that fits does."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low


def _ramps(instance: Instance, nodes: dict[int, Node], least: list[int], limit: int) -> tuple[int, int]:
    """Return how long both ramps of a device take at most, in ticks, and the room that they leave empty."""
    takes = [(node.delta, least[v]) for v, node in nodes.items() if node.kind is OpKind.F]
    frees = [(-node.delta, node.duration) for node in nodes.values() if node.kind is not OpKind.F]
    for node in nodes.values():
        if node.kind is OpKind.F and instance.has(OpKind.BW, node.stage, node.mb_class):
            frees.append((node.delta, _joint(instance, node)))
    alone = max(node.passing for node in nodes.values())
    ramps = [_ramp(rates, alone, limit) for rates in (takes, frees)]
    return sum(ticks for ticks, _ in ramps), sum(empty for _, empty in ramps)


def _ramp(rates: Iterable[tuple[int, int]], alone: int, limit: int) -> tuple[int, int]:
    """Return how long a ramp takes, and the room that it leaves empty.

    - `rates`: memory and ticks of the operations that run in it, one after another.
    - `alone`: the most memory that an F takes only while it runs.
    """
    most, steepest = alone, Fraction(0)
    for memory, ticks in rates:
        most, steepest = max(most, memory), max(steepest, Fraction(memory, ticks))
    if not steepest:
        return 0, 0
    left = max(0, limit - most)
    return ceil(left / steepest), int(left * left / (2 * steepest))


def _away(instance: Instance) -> list[list[int]]:
    """Return, for each class and stage, the least ticks from the end of F to the start of the backward."""
    nodes = zip(graph_of(instance).nodes, least_times(instance), strict=True)
    ticks = {(node.kind, node.mb_class, node.stage): least for node, least in nodes}
    found = []
    for c, route in enumerate(instance.class_routes):
        away = [0]
        for s, (here, there) in reversed(list(enumerate(pairwise(route)))):
            both = ticks[OpKind.F, c, s + 1] + ticks.get((OpKind.B, c, s + 1), 0)
            away.append(away[-1] + both + instance.comm(here, there) + instance.comm(there, here))
        found.append(away[::-1])
    return found


def _need(instance: Instance, forward: Node, ticks: int, away: int) -> int:
    """Return the least memory times ticks that a microbatch needs at a stage if nothing leaves.

    - `forward`: the node of its F, of which each takes at least `ticks`.
    - `away`: least ticks from the end of F to the start of the backward.
    """
    at = forward.stage, forward.mb_class
    if not instance.has_backward(*at):
        return forward.passing * ticks
    b, w = (instance.duration(kind, *at) for kind in (OpKind.B, OpKind.W))
    apart = forward.delta * (b or w) - (instance.memory_delta(OpKind.W, *at) * w if b else 0)
    return forward.delta * (ticks + away) + min(apart, forward.delta * _joint(instance, forward))


def _joint(instance: Instance, forward: Node) -> int:
    """Return the least ticks of the backward of an F, given by its node, as one operation."""
    pair = instance.shortest_pair(OpKind.BW, forward.stage, forward.device)
    alone = instance.duration(OpKind.BW, forward.stage, forward.mb_class)
    return alone if pair is None else min(alone, pair)


def _engines(
    graph: StepGraph, copies: list[Copy], frame: Frame, least: list[int], away: list[list[int]]
) -> list[_Engine]:
    """Return the knapsacks of a device with these copies, each of which bounds what they save."""
    savings = [
        _Saving(
            graph.nodes[one.forward].count,
            one.memory * max(0, away[one.mb_class][one.stage] - one.out - one.back),
            one.out,
            one.back,
        )
        for one in copies
    ]
    after_f = [frame.head[one.forward] + least[one.forward] for one in copies]
    from_b = [least[one.backward] + frame.tail[one.backward] for one in copies]
    before_out, after_back = min(after_f), min(from_b)
    before_back = min(begin + one.out for begin, one in zip(after_f, copies, strict=True))
    after_out = min(one.back + end for end, one in zip(from_b, copies, strict=True))
    out, back = before_out + after_out, before_back + after_back
    both = (2, out + back) if graph.duplex else (1, before_out + after_back)
    return [
        _engine(savings, lambda one: one.out, 1, out),
        _engine(savings, lambda one: one.back, 1, back),
        _engine(savings, lambda one: one.out + one.back, *both),
    ]


def _engine(savings: list[_Saving], ticks_of: Callable[[_Saving], int], frames: int, outside: int) -> _Engine:
    found = [(one.count, one.value, ticks_of(one)) for one in savings]
    return _Engine(sorted(found, key=lambda one: Fraction(one[1], one[2]), reverse=True), frames, outside)
