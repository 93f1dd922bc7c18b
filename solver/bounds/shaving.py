"""A destructive lower bound by shaving: the largest target whose windows come out empty."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from tightpipe.instance import Instance
from tightpipe.options import Options
from tightpipe.result import LogEntry

from ..clock import Clock
from ..queues import queues_of
from ..windows import shaved_windows
from . import best_bound
from .bound import Bound

_THOROUGH = 240  # deeper sweeps take longer than they bring
_SHARE = 0.4  # of the time left for one target: a hard one leaves time for easier ones
_FIRST, _LAST = 1 / 8, 1 / 512  # of the first gap: first and last step of the target


def shaving_bound(instance: Instance, upper: int, options: Options, lower: int = 0) -> Bound:
    """Bound the cost by targets T for which propagation and shaving leave no schedule.

    Parameters
    ----------
    instance
        A problem that has a schedule, without overlapped operations or flushed iterations.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    options
        Time limit (10 minutes when None), threads, progress.
    lower
        A proven bound of the cost: no smaller target is asked.

    Notes
    -----
    Every rule of `windows` holds for every schedule of cost at most T; when one side of an order leads
    to a contradiction, the other side holds; when both do, no schedule costs at most T, so every
    schedule costs at least T + 1. Fused backwards are dominated by split ones (`queues`), and busy links
    only add constraints. Targets rise in steps that double, as low ones take little time at any size;
    a target that stays open counts as too large.
    """
    begun = perf_counter()
    start = best_bound(instance)
    known = max(start.value, lower)
    low, high = known, upper
    clock = Clock(600.0 if options.time_limit is None else options.time_limit)
    step = (high - low) * _FIRST
    least = max(1.0, (high - low) * _LAST)
    while low < high and step >= least and clock.left > 0:
        target = min(high - 1, low + int(step))
        if _refuted(instance, target, options, clock.part(_SHARE)):
            low = target + 1
            options.progress(LogEntry(perf_counter() - begun, upper, low))
            step = min(2 * step, (high - low) / 2)
        else:
            high = target
            step = min(step, high - low) / 2
    seconds = perf_counter() - begun
    if low == known:
        return replace(start, seconds=seconds)
    argument = f"propagation and shaving show that no schedule costs {low - 1} or less"
    return Bound(low, "shaving", argument, seconds)


def _refuted(instance: Instance, target: int, options: Options, clock: Clock) -> bool:
    return not shaved_windows(queues_of(instance), target, options.threads, clock, _THOROUGH).feasible
