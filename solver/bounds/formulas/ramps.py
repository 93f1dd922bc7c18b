"""Bounds from the warm-up and the cool-down of a device, whose work the memory limits.

Pairs, which are operations that run together, change neither argument. No F is in a pair before the device's
first B starts, and no B is in a pair after the device's last F ends. So within these two parts of the span
every operation of the device takes its own duration. Paths count each operation with its least time, alone or
in a pair (`paths`), and the device's work is the least that pairs allow (`Instance.work`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import gcd, inf
from time import perf_counter

from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound

from .paths import Visit, visits


@dataclass(frozen=True, slots=True)
class Choice:
    """Identical things, each of which may be taken at most once, and then in one of several forms."""

    count: int  #: number of things
    forms: tuple[tuple[int, int], ...]  #: each form as (memory, work in ticks)


def most_work(choices: list[Choice], limit: int | None) -> int:
    """Return an upper bound on the work, in ticks, of the things that fit into the memory `limit` together.

    The bound is the value of the linear relaxation, with the limit rounded down to a multiple of the greatest
    common divisor of all memories. It is exact if all forms need the same memory.

    - `choices`: the things that can be taken. Memory and work of every form are at least 0.
    - `limit`: the memory limit; None for no limit.
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


def _density(step: tuple[int, int, int]) -> float:
    memory, work, _ = step
    return work / memory if memory else inf


def _increments(forms: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Return the edges of the upper concave hull of (0, 0) and the forms, steepest first.

    An edge is given as the (memory, work) that it adds.
    """
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


@lru_cache(maxsize=256)  # most bounds ask for it
def most_forwards(instance: Instance, device: int) -> int:
    """Return an upper bound on the work of F's that have begun on `device` before its first B, in ticks.

    No memory is freed until then, so all these F's fit into the memory of the device at once.
    """
    choices = [
        Choice(
            visit.microbatches, ((instance.memory_delta(OpKind.F, *at), instance.duration(OpKind.F, *at)),)
        )
        for visit in visits(instance, device)
        for at in visit.nodes
    ]
    return most_work(choices, instance.memory_limit(device))


@lru_cache(maxsize=256)
def most_held(instance: Instance, device: int, backward: int = 1, weight: int = 1) -> int:
    """Return an upper bound on the ticks of B's and W's left on `device` when all its F's have begun.

    A microbatch whose F has begun holds the memory of F and leaves B and W to do. A microbatch whose B is
    done holds the memory that W frees, and leaves W to do. All that is held fits into the memory of `device`.

    - `instance`, `device`: the problem, and the device whose work is bounded.
    - `backward`, `weight`: factors by which the ticks of each B and of each W are multiplied in the sum.
    """
    choices = [
        Choice(visit.microbatches, _forms(instance, *at, backward, weight))
        for visit in visits(instance, device)
        for at in visit.nodes
    ]
    return most_work(choices, instance.memory_limit(device))


def _forms(
    instance: Instance, stage: int, mb_class: int, backward: int, weight: int
) -> tuple[tuple[int, int], ...]:
    """Return, as (memory, work in ticks), the two forms in which the device may hold a microbatch of a class.

    The first form is before its B, the second between its B and its W. The ticks of B are multiplied by
    `backward`, and those of W by `weight`.
    """
    at = stage, mb_class
    w = weight * instance.duration(OpKind.W, *at)
    before_b = (instance.memory_delta(OpKind.F, *at), backward * instance.duration(OpKind.B, *at) + w)
    before_w = (-instance.memory_delta(OpKind.W, *at), w)
    return (before_b, before_w)


def warmup_bound(instance: Instance) -> Bound:
    """Bound the cost by the work of a device plus the time that it must idle before its first B.

    Notes
    -----
    Let lo and hi be the lowest and the highest of the device's stages on a route, and S the number of stages.
    The first operation of the device is an F at lo; let t0 be its start. The first B of the device is at hi;
    let tB be its start. The microbatch of that B ran F at lo no earlier than t0, so tB - t0 is at least the
    length of the path F lo, ..., F S-1, B S-1, ..., B hi+1 with its communication. Until tB the device can
    only run F's, and as no memory is freed, it holds all of them at once: their durations sum to at most what
    the memory limit admits (`most_forwards`). The rest of the time from t0 to tB is idle time. Of those of
    several classes of microbatches or two directions the shortest is taken. For one stage per device and
    microbatches that are alike, this is the published bound n (f+b+w) + max(0, (p-1)(b+2c) + (p-k) f) with
    k = min(n, limit // forward memory), where f, b, w and c are the ticks of F, B, W and a message, n the
    number of microbatches and p the number of devices.

    For the makespan, the earliest time at which an F can start on the device is added.
    """
    return _largest("warm-up", instance, lambda d: _warmup(instance, d) + _head(instance, d))


def cooldown_bound(instance: Instance) -> Bound:
    """Bound the cost by the work of a device plus the time that it must idle after its last F.

    Notes
    -----
    Let lo and hi be the lowest and the highest of the device's stages on a route, and S the number of stages.
    The last F of the device is at hi. After the end of that F, its microbatch still runs F hi+1, ..., F S-1,
    B S-1, ..., B lo and W lo. In that time the device can only run B's and W's of microbatches that it holds
    when the last F starts. A microbatch whose F is done holds the memory of F and leaves B and W to do; a
    microbatch whose B is done holds the memory that W frees and leaves W to do. The work of these B's and W's
    is at most `most_held`, and the rest of that time is idle time. For the makespan, the path may also go on
    from B lo to the B and W of stage 0; the longer path counts.
    """
    return _largest("cool-down", instance, lambda d: _cooldown(instance, d))


def ramps_bound(instance: Instance) -> Bound:
    """Bound the cost by the work of a device plus the times that it must idle in warm-up and cool-down.

    Notes
    -----
    The warm-up of `warmup_bound`, until the first B, and the cool-down of `cooldown_bound`, from the last F
    on, do not overlap in time unless all F's of the device run before its first B. That needs memory for all
    of them. Where there is that much memory, only the longer of the two idle times counts.
    """
    return _largest("ramps", instance, lambda d: _ramps(instance, d))


def _largest(name: str, instance: Instance, extra: Callable[[int], int]) -> Bound:
    begun, work = perf_counter(), works(instance)
    values = [ticks + extra(d) for d, ticks in enumerate(work)]
    value = max(values)
    device = values.index(value)
    argument = f"device {device} works {work[device]} and must idle {value - work[device]}"
    return Bound(value, name, argument, perf_counter() - begun)


def _ramps(instance: Instance, device: int) -> int:
    head, warm, cool = _head(instance, device), _warmup(instance, device), _cooldown(instance, device)
    return head + (max(warm, cool) if _holds_all(instance, device) else warm + cool)


def _head(instance: Instance, device: int) -> int:
    """Return the least ticks before the device's first operation if the cost is the makespan, else 0."""
    if not instance.whole:
        return 0
    return min(visit.arrival for visit in visits(instance, device))


def _warmup(instance: Instance, device: int) -> int:
    window = min(visit.until_backward for visit in visits(instance, device))
    return max(0, window - most_forwards(instance, device))


def _cooldown(instance: Instance, device: int) -> int:
    window = min(_after_last_forward(instance, visit) for visit in visits(instance, device))
    return max(0, window - most_held(instance, device))


def _after_last_forward(instance: Instance, visit: Visit) -> int:
    rest = visit.backward_and_weight
    if instance.whole:
        rest = max(rest, visit.departure)
    return visit.until_last_backward + rest


def _holds_all(instance: Instance, device: int) -> bool:
    """Return whether the device has memory for all its F's at once."""
    limit = instance.memory_limit(device)
    needed = sum(
        visit.microbatches * instance.memory_delta(OpKind.F, *at)
        for visit in visits(instance, device)
        for at in visit.nodes
    )
    return limit is None or needed <= limit
