"""A destructive lower bound: the largest target that is refuted, found by bisection."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from tightpipe.instance import Instance
from tightpipe.options import Options
from tightpipe.result import LogEntry

from ..cpsat.decide import decide
from . import best_bound
from .bound import Bound

_SHARE = 0.5  # of the time left for one target, so that a hard one leaves time for an easier one


def refutation_bound(instance: Instance, upper: int, options: Options, lower: int = 0) -> Bound:
    """Bound the cost by refuting "cost <= T" for ever larger T.

    Parameters
    ----------
    instance
        A problem that has a schedule.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    options
        Time limit (10 minutes when None), threads, seed, progress.
    lower
        A proven bound of the cost: no smaller target is asked.

    Notes
    -----
    If no schedule costs at most T, then every schedule costs at least T + 1 (costs are integers).
    Bisection between the best analytic bound and `upper`; a target that stays open when its share of
    the time is up counts as too large.
    """
    begun = perf_counter()
    start = best_bound(instance)
    known = max(start.value, lower)
    low, high = known, upper
    limit = 600.0 if options.time_limit is None else options.time_limit
    while low < high:
        left = limit - (perf_counter() - begun)
        if left < _SHARE:
            break
        target = (low + high) // 2
        decision = decide(instance, target, replace(options, time_limit=left * _SHARE))
        if decision.possible is False:
            low = target + 1
            options.progress(LogEntry(perf_counter() - begun, upper, low))
        else:
            high = target
    if low == known:
        return replace(start, seconds=perf_counter() - begun)
    argument = f"an exhaustive search shows that no schedule costs {low - 1} or less"
    return Bound(low, "refutation", argument, perf_counter() - begun)
