"""Destructive bounds: raise a bound target by target, as long as targets are refuted."""

from __future__ import annotations

from collections.abc import Callable

from tightpipe.options import Options
from tightpipe.result import LogEntry

from ..clock import Clock

Refuted = Callable[[int, Clock], bool]
"""Whether it is proven, before the clock ends, that no schedule costs at most a target."""

_LONGEST = 600.0  # seconds where no limit is given


def clock_of(options: Options) -> Clock:
    """Return the clock of a search that would not end by itself."""
    return Clock(_LONGEST if options.time_limit is None else options.time_limit)


def raise_bound(
    known: int,
    upper: int,
    refuted: Refuted,
    options: Options,
    clock: Clock,
    *,
    first: float,
    last: float,
    share: float,
) -> int:
    """Return the largest bound for which a target was refuted, at least `known`.

    Parameters
    ----------
    known
        A proven bound of the cost: no smaller target is asked.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    refuted
        Refutes one target.
    options
        Progress.
    clock
        Ends the search.
    first, last
        First and last step of the target, as shares of the first gap. Steps double as long as targets are
        refuted, up to half of the gap that is left; a first step of 1/2 makes a bisection.
    share
        Of the time left for one target: a hard one leaves time for easier ones.

    Notes
    -----
    Where no schedule costs at most T, every schedule costs at least T + 1, as costs are integers. A target
    that stays open counts as too large.
    """
    low, high = known, upper
    step, least = (upper - known) * first, (upper - known) * last
    while low < high and step >= least and clock.left > 0:
        target = min(high - 1, low + int(step))
        if refuted(target, clock.part(share)):
            low = target + 1
            options.progress(LogEntry(clock.elapsed, upper, low))
            step = min(2 * step, (high - low) / 2)
        else:
            high = target
            step = min(step, high - low) / 2
    return low
