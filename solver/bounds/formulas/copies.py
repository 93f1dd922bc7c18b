"""The bound `copies`: what a device has to hold for how long, less what its copy engines can carry away.

Without copies it is called `memory`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import ceil, gcd
from operator import itemgetter
from time import perf_counter
from typing import NamedTuple

from tightpipe.model.graph import NO_LIMIT, Copy, Node, StepGraph, graph_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound

from .frames import Frame, frames, sorted_edges


def copies_bound(instance: Instance) -> Bound:
    """Bound the cost by what a device has to hold, less the most that its copies can take away.

    **Memory times time.** A frame is an interval of length T = cost in which all operations of a device lie.
    In a makespan or a step all devices share one, with what comes before and after. Paths lead to the first
    operation of the device and from its last one, so it holds something in at most T less the ticks of the
    shortest such paths. Its memory limit times that time is the *room*. Some of it stays empty. In the
    beginning the device only holds what F's have taken, one after another: no more than the largest F takes,
    and with time the most that any F takes per tick. In the end it only holds what backwards have yet to
    free, one after another; fused ones count only if they take less than B and W, as others may be split. The
    room that these two *ramps* leave empty is taken off, if T is so long that they do not meet.

    Microbatches need room, too, and all that they need has to fit:

    - A microbatch holds the memory f of a stage from the start of F to the end of the backward there, and the
      memory of W from then on until its W has ended. From the end of F to the start of the backward lies a
      path through all later stages, of g ticks; that of a slice leads through F's and backwards of later
      slices. So it *needs* f times the least ticks of F, g, and the ticks of the backward, with what it holds
      during a W of its own. It may fuse the two; the lesser sum counts.
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

    **Between the ends.** Before tick y, the first at which a backward of the device may start, it runs F's
    alone. Where one of them starts, it holds all F's so far, but for what copies out have freed, which run
    one after another from the end of its first F on. So the F's that start before y take at most as long as
    F's whose memory fits into the limit and what so many copies carry. All other work lies after y. In the
    same way, no F runs in the last y' ticks of a frame, as a path leads from each F to the end. The backwards
    that end in them free what the device holds at their begin, and what copies back bring in after it, which
    end before the last backwards start. Of each microbatch it is the W alone that ends there, or all of its
    backward, so their work is at most what fits into the limit and these copies. The least work of the device
    without both is done in between, if there is any left. So it sums with y and y' to at most the cost. The
    same holds for all smaller y and y'.
    """
    begun, work = perf_counter(), works(instance)
    found = [max(ticks, least_room(instance, d), _between_ends(instance, d)) for d, ticks in enumerate(work)]
    value = max(found)
    device = found.index(value)
    argument = f"device {device} holds its activations within its memory limit in no less time"
    if instance.offload is None:
        return Bound(value, "memory", argument, perf_counter() - begun)
    argument += ", whatever its copies carry away"
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


def least_room(instance: Instance, device: int) -> int:
    """Return the least cost by memory times time alone of what a device holds; 0 without a limit."""
    graph, away = graph_of(instance), _away(instance)
    limit = graph.limits[device]
    if limit >= NO_LIMIT or limit == 0:
        return 0
    frame, least = frames(instance)[0 if instance.whole else device], graph.least
    nodes = {v: node for v, node in enumerate(graph.nodes) if node.device == device}
    outside = min(frame.head[v] for v in nodes) + min(frame.tail[v] for v in nodes)
    backward: _Backwards = Counter()
    for v, node in nodes.items():
        if node.kind is not OpKind.F:
            backward[node.stage, node.mb_class] += least[v]
    need = sum(
        node.count * _need(instance, node, least[v], away[node.mb_class][node.stage], backward)
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

    value, (ticks, empty) = least_cost(0), _ramps(instance, nodes, least, backward, limit)
    return least_cost(empty) if value >= outside + ticks else value


def _least(fits: Callable[[int], bool], most: int) -> int:
    """Return the least number from 0 to `most` that fits, if every number above one that fits does."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low


def _ramps(
    instance: Instance, nodes: dict[int, Node], least: tuple[int, ...], backward: _Backwards, limit: int
) -> tuple[int, int]:
    """Return how long both ramps of a device take at most, in ticks, and the room that they leave empty."""
    takes = [(node.delta, least[v]) for v, node in nodes.items() if node.kind is OpKind.F]
    frees = [(-node.delta, node.duration) for node in nodes.values() if node.kind is not OpKind.F]
    for node in nodes.values():
        at = node.stage, node.mb_class
        apart = sum(instance.duration(kind, *at) for kind in (OpKind.B, OpKind.W))
        if node.kind is OpKind.F and backward[at] < apart:
            frees.append((node.delta, backward[at]))
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
        if memory:  # else it may take no time
            most, steepest = max(most, memory), max(steepest, Fraction(memory, ticks))
    if not steepest:
        return 0, 0
    left = max(0, limit - most)
    return ceil(left / steepest), int(left * left / (2 * steepest))


_Backwards = Counter[tuple[int, int]]
"""Least ticks of a B and its W, alone or joint, by stage and class."""
_Part = tuple[int, int, int]
"""Of operations of a kind: number, ticks of each, and memory of each."""


class _End(NamedTuple):
    """Says that a device does no more than `work` ticks of its work in the first, or the last, `ticks`."""

    ticks: int
    work: int


def _between_ends(instance: Instance, device: int) -> int:
    """Return the least cost for which a device can do in between what it cannot do at both ends."""
    graph = graph_of(instance)
    frame, least = frames(instance)[0 if instance.whole else device], graph.least
    limit, work = graph.limits[device], instance.work(device)
    nodes = {v: node for v, node in enumerate(graph.nodes) if node.device == device}
    forward = {v: node for v, node in nodes.items() if node.kind is OpKind.F}
    copies = [copy for copy in graph.copies if copy.device == device]
    first, last = [_End(min(frame.head[v] for v in nodes), 0)], [_End(min(frame.tail[v] for v in nodes), 0)]
    if len(nodes) > len(forward) and limit < NO_LIMIT:
        parts = [(node.count, node.duration, node.delta) for node in forward.values()]
        unit = gcd(*(node.delta for node in forward.values()))
        out = [(frame.head[one.forward] + least[one.forward], one.out, one.memory) for one in copies]
        first += _ends(parts, (limit, unit), min(frame.head[v] for v in nodes if v not in forward), out)
        parts = [part for node in forward.values() for part in _backward_parts(instance, node)]
        unit = gcd(*(node.delta for node in nodes.values()))
        back = [(least[one.backward] + frame.tail[one.backward], one.back, one.memory) for one in copies]
        last += _ends(parts, (limit, unit), min(frame.tail[v] for v in forward), back)
    both = product(first, last)
    between = (a.ticks + b.ticks + work - a.work - b.work for a, b in both if a.work + b.work < work)
    return max(between, default=0)  # a device whose stages are all empty has no work


def _ends(
    parts: list[_Part], room: tuple[int, int], most: int, copies: list[tuple[int, int, int]]
) -> Iterator[_End]:
    """Yield how much a device does at an end of a frame, for several numbers of ticks up to `most`.

    - `parts`: what it can do there.
    - `room`: memory limit, and the unit of which all memory is a multiple.
    - `copies`: of each kind, ticks between the end of the frame and the first copy, ticks, and memory.
    """
    limit, unit = room
    begin = min((ticks for ticks, _, _ in copies), default=0)
    shortest = min((ticks for _, ticks, _ in copies), default=1)
    largest = max((memory for _, _, memory in copies), default=0)
    # but for whole copies, ticks less work are convex in the ticks, so the extremes are enough
    for ticks in {begin + shortest, begin + (most - begin) // shortest * shortest, most}:
        if 0 < ticks <= most:
            time = max(0, ticks - 1 - begin)
            by_rate = max((time * memory // each for _, each, memory in copies), default=0)
            held = limit + min(time // shortest * largest, by_rate)
            yield _End(ticks, _most_work(parts, held - held % max(1, unit)))


def _most_work(parts: list[_Part], room: int) -> int:
    """Return the most ticks of work, of which fractions may be taken, whose memory fits into a room."""
    work = sum(count * ticks for count, ticks, memory in parts if not memory)
    held = filter(itemgetter(2), parts)
    for count, ticks, memory in sorted(held, key=lambda part: Fraction(part[1], part[2]), reverse=True):
        taken = min(room, count * memory)
        work, room = work + ticks * taken // memory, room - taken
    return work


def _backward_parts(instance: Instance, forward: Node) -> list[_Part]:
    """Return what may run after all else of the backwards of an F, given by its node: W's, or all of them."""
    at, count, memory = (forward.stage, forward.mb_class), forward.count, forward.delta
    both, w = instance.least_backward(*at), instance.duration(OpKind.W, *at)
    frees = -instance.memory_delta(OpKind.W, *at)
    if not w or w * memory < both * frees:
        return [(count, both, memory)]
    return [(count, w, frees), (count, max(0, both - w), memory - frees)]


@lru_cache(maxsize=16)
def _away(instance: Instance) -> list[list[int]]:
    """Return, for each class and stage, the least ticks from the end of F to the start of the backward.

    They are those of the longest path between the two, which leads through all later stages, and where
    microbatches have slices, through F's and backwards of later slices. Every such path passes the last F of
    the microbatch at the last stage, and then its first backward. Without a backward they mean nothing.
    """
    graph = graph_of(instance)
    least = graph.least
    until_last_f, since_first = [0] * len(graph.nodes), [0] * len(graph.nodes)
    edges = sorted_edges(instance)
    for edge in reversed(edges):
        if graph.nodes[edge.after].kind is OpKind.F:
            there = edge.lag + least[edge.after] + until_last_f[edge.after]
            until_last_f[edge.before] = max(until_last_f[edge.before], there)
    for edge in edges:
        if graph.nodes[edge.before].kind is not OpKind.F:
            there = since_first[edge.before] + least[edge.before] + edge.lag
            since_first[edge.after] = max(since_first[edge.after], there)
    index = {(node.kind, node.mb_class, node.stage): v for v, node in enumerate(graph.nodes)}

    def away(c: int, s: int) -> int:
        backward = index.get((OpKind.B, c, s), index.get((OpKind.W, c, s), 0))
        return until_last_f[index[OpKind.F, c, s]] + since_first[backward]

    return [[away(c, s) for s in range(instance.stages)] for c in range(len(instance.class_routes))]


def _need(instance: Instance, forward: Node, ticks: int, away: int, backward: _Backwards) -> int:
    """Return the least memory times ticks that a microbatch needs at a stage if nothing leaves.

    - `forward`: the node of its F, of which each takes at least `ticks`.
    - `away`: least ticks from the end of F to the start of the backward.
    """
    at = forward.stage, forward.mb_class
    if not instance.has_backward(*at):
        return forward.passing * ticks
    b, w = (instance.duration(kind, *at) for kind in (OpKind.B, OpKind.W))
    apart = forward.delta * (b or w) - (instance.memory_delta(OpKind.W, *at) * w if b else 0)
    return forward.delta * (ticks + away) + min(apart, forward.delta * backward[at])


def _engines(
    graph: StepGraph, copies: list[Copy], frame: Frame, least: tuple[int, ...], away: list[list[int]]
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
