"""Bounds from the two ends of a device's span: the warm-up and the cool-down.

Pairs, which are operations that run together, change neither argument. No F is in a pair before the device's
first B starts, and no B is in a pair after the device's last F ends. So within these two parts of the span
every operation of the device takes its own duration. Paths count each operation with its least time, alone or
in a pair (`routes`), and the device's work is the least that pairs allow (`Instance.work`).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.result import Bound

from .held import most_forwards, most_held
from .routes import Visit, visits


def warmup_bound(instance: Instance) -> Bound:
    """Bound the cost by the work of a device plus the time that it must idle before its first B.

    Notes
    -----
    Let lo and hi be the lowest and the highest of the device's stages on a route, and S the number of stages.
    The first operation of the device is an F at lo; let t0 be its start. The first B of the device is at hi;
    let tB be its start. The microbatch of that B ran F at lo no earlier than t0, so tB - t0 is at least the
    length of the path F lo, ..., F S-1, B S-1, ..., B hi+1 with its communication. Until tB the device can
    only run F's, and as no memory is freed, it holds all of them at once: their durations sum to at most what
    the memory limit admits (`most_forwards`). The rest of the time from t0 to tB is idle time. With two
    directions the shorter of the two paths is taken. For one stage per device this is the published bound
    n (f+b+w) + max(0, (p-1)(b+2c) + (p-k) f) with k = min(n, limit // forward memory), where f, b, w and c
    are the ticks of F, B, W and a message, n the number of microbatches and p the number of devices.

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
        visit.microbatches * instance.memory_delta(OpKind.F, s)
        for visit in visits(instance, device)
        for s in visit.stages
    )
    return limit is None or needed <= limit
