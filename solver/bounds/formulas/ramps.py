"""Bounds from the warm-up and the cool-down of a device, whose work the memory limits.

Pairs, which are operations that run together, change neither argument. No F is in a pair before the device's
first B starts, and no B is in a pair after the device's last F ends. So within these two parts of the span
every operation of the device takes its own duration. Paths count each operation with its least time, alone or
in a pair (`paths`), and the device's work is the least that pairs allow (`Instance.work`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import gcd, inf
from operator import attrgetter
from time import perf_counter

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph import Node, graph_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound

from .paths import after_last_forward, shortest, until_first_backward, until_first_forward

_MOST_SLICES = 64  # the forms of a microbatch are as many as their square


@dataclass(frozen=True, slots=True)
class Choice:
    """Identical things, each of which may be taken at most once, and then in one of several forms."""

    count: int  #: number of things
    forms: tuple[tuple[int, int], ...]  #: each form as (memory, work in ticks)


def most_work(choices: list[Choice], limit: int | None) -> int:
    """Return an upper bound on the work, in ticks, of the things that fit into the memory `limit` together.

    The bound is the value of the linear relaxation, with the limit, if there is one, rounded down to a
    multiple of the greatest common divisor of all memories. It is exact if all forms need the same memory.
    Memory and work of every form are at least 0.
    """
    if limit is None:
        return sum(c.count * max(work for _, work in c.forms) for c in choices)
    unit = gcd(*(memory for c in choices for memory, _ in c.forms)) or 1
    steps = [(memory, work, c.count) for c in choices for memory, work in _increments(c.forms)]
    room = limit // unit * unit
    price, per = _price(steps, room)
    most = price * room + sum(max(0, work * per - price * memory) * count for memory, work, count in steps)
    return most // per


def _price(steps: list[tuple[int, int, int]], room: int) -> tuple[int, int]:
    """Return the work that memory is worth, as a fraction, where these steps compete for it.

    Any other price gives an upper bound as well (linear duality), so the densities may be rounded.
    """
    for memory, work, count in sorted(steps, key=_density, reverse=True):
        room -= count * memory
        if room < 0:
            return work, memory
    return 0, 1


def _density(step: tuple[int, int] | tuple[int, int, int]) -> float:
    memory, work = step[:2]
    return work / memory if memory else inf


def _increments(forms: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Return the edges (memory, work) of the upper concave hull of (0, 0) and the forms, steepest first."""
    hull: list[tuple[int, int]] = [(0, 0)]
    for memory, work in sorted(forms, key=lambda form: (form[0], -form[1])):
        if work <= hull[-1][1]:
            continue
        while len(hull) > 1 and _left_of(hull[-2], hull[-1], (memory, work)):
            hull.pop()
        hull.append((memory, work))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(hull)]


def _left_of(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    """Return whether b lies on or below the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])


@lru_cache(maxsize=16)
def _forwards(instance: Instance) -> tuple[list[Node], ...]:
    """Return for each device the nodes of its F's in the graph, class after class."""
    found: tuple[list[Node], ...] = tuple([] for _ in range(instance.devices))
    for node in sorted(graph_of(instance).nodes, key=attrgetter("mb_class", "stage")):
        if node.kind is OpKind.F:
            found[node.device].append(node)
    return found


def nodes_on(instance: Instance, device: int) -> list[tuple[int, int]]:
    """Return each stage of a device with each class of microbatches there."""
    return [(node.stage, node.mb_class) for node in _forwards(instance)[device]]


@lru_cache(maxsize=16)
def _microbatches(instance: Instance) -> tuple[list[list[Node]], ...]:
    """Return for each device the nodes of the F's of each stage and class, one for each slice in sequence.

    Of more than `_MOST_SLICES`, each slice stands alone, which lets a device hold any of them.
    """
    slices = instance.class_slices
    if instance.slice_count > _MOST_SLICES:
        return tuple([[node] for node in nodes] for nodes in _forwards(instance))
    found: tuple[list[list[Node]], ...] = tuple([] for _ in range(instance.devices))
    for own, nodes in zip(found, _forwards(instance), strict=True):
        at = {(node.stage, node.mb_class): node for node in nodes}
        first = [one for one in at if slices[one[1]] == 0]  # the classes of later slices come right after
        own += [[at[s, c + j] for j in range(instance.slice_count)] for s, c in first]
    return found


@lru_cache(maxsize=256)  # most bounds ask for it
def most_forwards(instance: Instance, device: int) -> int:
    """Return an upper bound on the work of F's that have begun on `device` before its first B, in ticks.

    No memory is freed until then, so all these F's fit into the memory of the device at once. Of the slices
    of a microbatch, the first ones have begun.
    """
    choices = []
    for nodes in _microbatches(instance)[device]:
        sums = tuple(accumulate(((node.delta, node.duration) for node in nodes), _plus))
        choices.append(Choice(nodes[0].count, sums))
    return most_work(choices, instance.memory_limit(device))


@lru_cache(maxsize=256)
def most_held(instance: Instance, device: int, backward: int = 1, weight: int = 1) -> int:
    """Return an upper bound on the ticks of B's and W's left on `device` when all its F's have begun.

    A microbatch whose F has begun holds the memory of F and leaves B and W to do. A microbatch whose B is
    done holds the memory that W frees, and leaves W to do. All that is held fits into the memory of `device`.
    The ticks of each B are multiplied by `backward`, and those of each W by `weight`. If fused backwards are
    shorter than B and W, a W counts by how much a fused backward is longer than a B: that is what is left of
    a backward, less what splitting it adds.

    B's run from the last slice of a microbatch to the first. So the first slices have B and W left to do, any
    number of them, and of the others some have W left. Of these, those with the most ticks for their memory
    come first: others change nothing, because fractions of all forms may be taken.
    """
    choices = []
    for count, held in _left_by_forwards(instance)[device]:
        before_b = [(memory, backward * b + weight * w) for memory, _, b, w in held]
        before_w = [(pending, weight * w) for _, pending, _, w in held]
        choices.append(Choice(count, _forms(before_b, before_w)))
    return most_work(choices, instance.memory_limit(device))


def _forms(before_b: list[tuple[int, int]], before_w: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the memory and ticks of a microbatch with any number of slices before B, and others before W."""
    if len(before_b) == 1:  # the rest would find the same, but a step of a second has no time for that
        return *before_w, *before_b
    forms = list[tuple[int, int]]()
    for j, first in enumerate(accumulate(before_b, _plus, initial=(0, 0))):
        rest = sorted(before_w[j:], key=_density, reverse=True)
        forms += accumulate(rest, _plus, initial=first)
    return tuple(forms)


@lru_cache(maxsize=16)
def _left_by_forwards(instance: Instance) -> tuple[list[tuple[int, list[tuple[int, int, int, int]]]], ...]:
    """Return for each device what the microbatches of each stage and class leave to do there.

    For each of them comes its count, and for each slice the memory that F holds and that W frees, the ticks
    of B, and how much longer than a B the backward is at least.
    """

    def left(node: Node) -> tuple[int, int, int, int]:
        at = node.stage, node.mb_class
        b = instance.duration(OpKind.B, *at)
        return node.delta, -instance.memory_delta(OpKind.W, *at), b, max(0, instance.least_backward(*at) - b)

    return tuple(
        [(nodes[0].count, [left(node) for node in nodes]) for nodes in own] for own in _microbatches(instance)
    )


def _plus(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]


def most_before(instance: Instance, first_b: Ints) -> Ints:
    """Return the most work, in ticks, that each worker can have done `first_b` ticks after the frame's start.

    Both arrays have the shape (frames, workers). No B of the worker starts in the first `first_b` ticks of
    the frame. So this work consists of F's. Together they fit into the worker's memory, and into the time
    from the worker's earliest start on. A worker whose first stage comes before the first stage of the
    frame's device may start before the frame does. Then only memory limits its work.
    """
    held = np.array([most_forwards(instance, worker) for worker in range(instance.devices)])
    begin = shortest(instance, until_first_forward)
    return np.where(begin >= 0, np.minimum(held, first_b - begin), held)


def ramps_bound(instance: Instance) -> Bound:
    """Bound the cost by the work of a device plus the times that it must idle in warm-up and cool-down.

    Notes
    -----
    Let lo and hi be the lowest and the highest of the device's stages on a route, and S the number of stages.

    *Warm-up.* The first operation of the device is an F at lo; let t0 be its start. The first B of the device
    is at hi; let tB be its start. The microbatch of that B ran F at lo no earlier than t0, so tB - t0 is at
    least the length of the path F lo, ..., F S-1, B S-1, ..., B hi+1 with its communication. Until tB the
    device can only run F's, and as no memory is freed, it holds all of them at once: their durations sum to
    at most what the memory limit admits (`most_forwards`). The rest of the time from t0 to tB is idle time.
    For the makespan, paths begin with F 0, and the time before t0 is idle time, too.

    *Cool-down.* The last F of the device is at hi. After the end of that F, its microbatch still runs F hi+1,
    ..., F S-1, B S-1, ..., B lo and W lo. In that time the device can only run B's and W's of microbatches
    that it holds when the last F starts. Their work is at most `most_held`, and the rest of that time is idle
    time. For the makespan, the path may also go on from a B to B's and W's of lower stages.

    Slices of a microbatch make both paths longer, as its first B waits for all of its F's (`frames`), and the
    device holds the first slices of a microbatch before it holds a later one (`most_held`).

    Of the paths of several classes of microbatches or two directions the shortest is taken. Warm-up and
    cool-down do not overlap in time unless all F's of the device run before its first B. That needs memory
    for all of them. Where there is that much memory, only the larger of the two idle times counts.

    For one stage per device and microbatches that are alike, the warm-up alone is the published bound
    n (f+b+w) + max(0, (p-1)(b+2c) + (p-k) f) with k = min(n, limit // forward memory), where f, b, w and c
    are the ticks of F, B, W and a message, n the number of microbatches and p the number of devices.
    """
    begun, work = perf_counter(), works(instance)
    first_b, own = shortest(instance, until_first_backward), range(instance.devices)
    head, warm, last_f = (
        np.diagonal(ticks)  # each device is the worker in its own frame
        for ticks in (
            shortest(instance, until_first_forward),
            first_b - most_before(instance, first_b),
            shortest(instance, after_last_forward),
        )
    )
    cool = np.maximum(0, last_f - [most_held(instance, d) for d in own])
    holding = np.array([holds_all(instance, d) for d in own])
    values = np.array(work) + np.where(holding, np.maximum(warm, head + cool), warm + cool)
    device = int(values.argmax())
    value = int(values[device])
    argument = f"device {device} works {work[device]} and must idle {value - work[device]}"
    return Bound(value, "ramps", argument, perf_counter() - begun)


def holds_all(instance: Instance, device: int) -> bool:
    """Return whether the device has memory for all its F's at once."""
    limit = instance.memory_limit(device)
    return limit is None or sum(node.count * node.delta for node in _forwards(instance)[device]) <= limit
