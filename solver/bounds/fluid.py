"""A destructive lower bound by a linear program: the largest target that no fractional progress meets."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from tightpipe.instance import Instance
from tightpipe.options import Options
from tightpipe.result import LogEntry

from ..clock import Clock
from ..queues import queues_of
from ..windows import windows_of
from . import best_bound
from .bound import Bound
from .fluid_rows import FluidRows
from .infeasible import is_infeasible

_GRIDS = 64, 128, 256  # intervals; the finer, the stronger and slower
_LAST = 1 / 64  # of the first gap: where the search on one grid ends
_SHARE = 0.5  # of the time left for one target, so that a hard one leaves time for an easier one
_MOST_VARIABLES = 60_000


def fluid_bound(instance: Instance, upper: int, options: Options, lower: int = 0) -> Bound:
    """Bound the cost by targets T that even fractional progress of the queues cannot meet.

    Parameters
    ----------
    instance
        A problem that has a schedule, without overlapped operations or flushed iterations.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    options
        Time limit (10 minutes when None), progress.
    lower
        A proven bound of the cost: no smaller target is asked.

    Notes
    -----
    Every schedule of cost at most T lies inside the windows of T, and its progress satisfies the
    inequalities of `fluid_rows`. Where these have no solution, every schedule costs at least T + 1; the
    multipliers that show it come from an interior point method and are checked in integers
    (`infeasible`), so that no tolerance enters. Bisection, on ever finer grids of time; a target that stays
    open counts as too large. Busy links only add constraints, fused backwards are dominated
    (`queues`).
    """
    begun = perf_counter()
    clock = Clock(600.0 if options.time_limit is None else options.time_limit)
    start = best_bound(instance)
    known = low = max(start.value, lower)
    least = max(1.0, (upper - low) * _LAST)
    variables = len(queues_of(instance).queues)
    for intervals in (grid for grid in _GRIDS if grid * variables <= _MOST_VARIABLES):
        high = upper
        while high - low >= least and clock.left > 0:
            target = (low + high) // 2
            if _refuted(instance, target, intervals, Clock(_SHARE * clock.left)):
                low = target + 1
                options.progress(LogEntry(perf_counter() - begun, upper, low))
            else:
                high = target
    seconds = perf_counter() - begun
    if low == known:
        return replace(start, seconds=seconds)
    argument = f"no fractional progress of the operations ends at a cost of {low - 1} or less"
    return Bound(low, "fluid", argument, seconds)


def _refuted(instance: Instance, target: int, intervals: int, clock: Clock) -> bool:
    queues = queues_of(instance)
    windows = windows_of(queues, target, clock)
    return not windows.feasible or is_infeasible(FluidRows(queues, windows, intervals).system, clock)
