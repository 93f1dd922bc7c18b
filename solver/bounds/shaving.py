"""A destructive lower bound by shaving: the largest target whose windows come out empty."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from tightpipe.instance import Instance
from tightpipe.options import Options
from tightpipe.result import LogEntry

from ..cpsat.clock import Clock
from ..cpsat.queues import queues_of
from ..windows import Shaver, windows_of
from . import best_bound
from .bound import Bound

_SHARE = 0.3  # of the time left for one target: a hard one leaves time for easier ones
_FINE = 512  # the search ends when less than this part of the first gap is open


def shaving_bound(instance: Instance, upper: int, options: Options) -> Bound:
    """Bound the cost by targets T for which propagation and shaving leave no schedule.

    Parameters
    ----------
    instance
        A problem that has a schedule, without overlapped operations or flushed iterations.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    options
        Time limit (10 minutes when None), threads, progress.

    Notes
    -----
    Every rule of `windows` holds for every schedule of cost at most T; when one side of an order leads
    to a contradiction, the other side holds; when both do, no schedule costs at most T, so every
    schedule costs at least T + 1. Fused backwards are dominated by split ones (`queues`), and busy links
    only add constraints. Bisection between the best analytic bound and `upper`; a target that stays
    open counts as too large.
    """
    begun = perf_counter()
    start = best_bound(instance)
    low, high = start.value, upper
    clock = Clock(600.0 if options.time_limit is None else options.time_limit)
    least = max(1, (high - low) // _FINE)
    while high - low >= least and clock.left > 0:
        target = (low + high) // 2
        if _refuted(instance, target, options, Clock(_SHARE * clock.left)):
            low = target + 1
            options.progress(LogEntry(perf_counter() - begun, upper, low))
        else:
            high = target
    seconds = perf_counter() - begun
    if low == start.value:
        return replace(start, seconds=seconds)
    argument = f"propagation and shaving show that no schedule costs {low - 1} or less"
    return Bound(low, "shaving", argument, seconds)


def _refuted(instance: Instance, target: int, options: Options, clock: Clock) -> bool:
    shaver = Shaver(windows_of(queues_of(instance), target, clock), options.threads)
    return shaver.run(clock) is True
