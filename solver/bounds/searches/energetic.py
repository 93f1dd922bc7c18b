"""A destructive lower bound by energetic reasoning: at a lower cost some device would have too much to do."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from tightpipe.model.instance import Instance
from tightpipe.model.result import Bound, LogEntry, Progress, Proof, ignore
from tightpipe.params.budget import Budget

from ...queues import Queues, queues_of
from ...windows import Windows, windows_of
from ..formulas import best_bound
from .energetic_kernel import overload_of


def energetic_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by refuting targets under which some device has more work than time between two times.

    Parameters
    ----------
    instance
        A problem that has a schedule.
    upper
        The cost of a known schedule in ticks; no target is larger than upper - 1.
    budget
        The limits for all targets together; a search without a deadline ends after ten minutes.
    lower
        A proven bound of the cost in ticks; no target is smaller.
    progress
        Called with each better bound.

    Notes
    -----
    Every schedule of cost at most a target T lies inside the windows of T. Where `overload_of` proves that no
    schedule lies inside them, every schedule costs at least T + 1.

    The first target is upper - 1. The excess that `overload_of` returns mostly shrinks by one tick when T
    grows by one tick. So after a refuted target the next one is the largest at which an excess of one tick
    would remain, but it is at least `step` ticks ahead. `step` starts at 1, doubles at each refutation, and
    is 1 again after a target that stays open. Then the next target lies in the middle between the bound and
    the open one.

    Joint operations are items one behind the other (`windows`). Slices, flushes, busy links and a
    step around the operations only add constraints, which the windows know.
    """
    begun, budget = perf_counter(), budget.with_deadline()
    start = best_bound(instance)
    known = low = max(start.value, lower)
    high, target, step = upper, upper - 1, 1
    queues, devices, wider = queues_of(instance), list(reversed(range(instance.devices))), None
    while low < high and budget.left > 0:
        windows = windows_of(queues, target, budget, wider)
        excess = _excess(queues, windows, devices)
        if excess > 0:
            low = target + 1
            progress(LogEntry(perf_counter() - begun, upper, low, Proof.ENERGETIC))
            target = min(high - 1, target + max(step, excess - 1))
            step *= 2
        else:
            wider, high, step = windows, target, 1
            target = (low + high) // 2
    if low == known:
        return replace(start, seconds=perf_counter() - begun)
    argument = f"a device would have too much to do between two times at a cost of {low - 1} or less"
    return Bound(low, "energetic", argument, perf_counter() - begun, Proof.ENERGETIC)


def _excess(queues: Queues, windows: Windows, devices: list[int]) -> int:
    """Return the excess, in ticks, of the first overloaded device, and 0 if no device is overloaded.

    That device moves to the front of `devices`, so that the next call tries it first. Windows that are not
    feasible count as an excess of 1.
    """
    if not windows.feasible:
        return 1
    for device in devices:
        excess = overload_of(windows, device)
        if excess > 0:
            devices.remove(device)
            devices.insert(0, device)
            return excess
    return 0
