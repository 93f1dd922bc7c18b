"""Bounds from the two ends of a device's span: warm-up and cool-down.

Operations that run together change neither argument. No F is in a pair before the device's first B starts,
and no B is in one after its last F ends, so within the two windows every operation of the device takes its
own duration; elsewhere paths count the least time (`routes`), and the work of the device is what is left
when as many pairs as pay are made (`Instance.work`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from tightpipe.core.instance import Instance, Objective
from tightpipe.core.operation import OpKind
from tightpipe.core.result import Bound

from .held import most_forwards, most_held
from .routes import Visit, visits


def warmup_bound(instance: Instance) -> Bound:
    """Bound the cost by what each device must idle before its first B.

    Notes
    -----
    A device's first operation is F of the lowest stage of a route (lo), at t0; its first B is of the
    route's highest stage there (hi), at tB. The microbatch of that B ran F at lo no earlier than t0, so
    tB - t0 is at least the path F lo, ..., F S-1, B S-1, ..., B hi+1 with its communication. Until tB
    the device can only run F's, and as nothing is freed they are all held at once: their durations
    sum to at most what the memory limit admits (`most_forwards`). The rest of the window is idle time.
    With two directions the shorter of the two paths is taken. For one stage per device this is the
    published n (f+b+w) + max(0, (p-1)(b+2c) + (p-k) f), k = min(n, limit // forward memory).

    For the makespan, the time until F of the device's lowest stage can first arrive is added.
    """
    return _largest("warm-up", instance, lambda d: _warmup(instance, d) + _head(instance, d))


def cooldown_bound(instance: Instance) -> Bound:
    """Bound the cost by what each device must idle after its last F.

    Notes
    -----
    A device's last F is of a route's highest stage there. After its end the same microbatch still
    takes F hi+1, ..., F S-1, B S-1, ..., B lo and W lo. In that window the device can only run B's and W's
    of microbatches that it holds when that last F starts: a microbatch whose F is done holds the memory
    of F and leaves B and W to do, one whose B is done holds what W frees and leaves W. Their work is at
    most `most_held`; the rest is idle time. For the makespan, the path goes on to W of stage 0.
    """
    return _largest("cool-down", instance, lambda d: _cooldown(instance, d))


def ramps_bound(instance: Instance) -> Bound:
    """Bound the cost by the idle times of warm-up and cool-down together.

    Notes
    -----
    The windows of `warmup_bound` (until the first B) and `cooldown_bound` (from the last F on) are
    disjoint unless all F's of the device run before its first B. That needs memory for all of them;
    where there is that much, only the longer idle time counts.
    """
    return _largest("ramps", instance, lambda d: _ramps(instance, d))


def _largest(name: str, instance: Instance, extra: Callable[[int], int]) -> Bound:
    begun = perf_counter()
    values = [instance.work(d) + extra(d) for d in range(instance.devices)]
    value = max(values)
    device = values.index(value)
    argument = f"device {device} works {instance.work(device)} and must idle {value - instance.work(device)}"
    return Bound(value, name, argument, perf_counter() - begun)


def _ramps(instance: Instance, device: int) -> int:
    head, warm, cool = _head(instance, device), _warmup(instance, device), _cooldown(instance, device)
    return head + (max(warm, cool) if _holds_all(instance, device) else warm + cool)


def _head(instance: Instance, device: int) -> int:
    """Ticks before the device's first operation that count for the objective."""
    if instance.objective is Objective.DEVICE_SPAN:
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
    if instance.objective is Objective.MAKESPAN:
        rest = max(rest, visit.departure)
    return visit.until_last_backward + rest


def _holds_all(instance: Instance, device: int) -> bool:
    """Whether the device has memory for all its F's at once."""
    limit = instance.memory_limit(device)
    needed = sum(
        visit.microbatches * instance.memory_delta(OpKind.F, s)
        for visit in visits(instance, device)
        for s in visit.stages
    )
    return limit is None or needed <= limit
