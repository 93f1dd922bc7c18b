"""Destructive bounds: raise a bound target by target, as long as targets are refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tightpipe.core.instance import Instance
from tightpipe.core.options import Options
from tightpipe.core.result import Bound, LogEntry, Proof

from ...clock import Clock
from ..formulas import best_bound

Refute = Callable[[int, Clock], Proof | None]
"""Prove before the clock ends that no schedule costs at most a target; None where that stays open."""

_SECONDS = 600.0  # where no limit is given: a search would not end by itself


@dataclass(frozen=True, slots=True)
class Steps:
    """How the targets go up.

    Parameters
    ----------
    first, last
        First and last step of the target, as shares of the first gap. Steps double as long as targets are
        refuted, up to half of the gap that is left; a first step of 1/2 makes a bisection.
    share
        Of the time left for one target: a hard one leaves time for easier ones.
    """

    first: float
    last: float
    share: float


def destructive_bound(
    name: str,
    argument: str,
    refute: Refute,
    steps: Steps,
    instance: Instance,
    upper: int,
    options: Options,
    lower: int,
) -> Bound:
    """Return the largest bound for which a target was refuted; the best formula where none was.

    Parameters
    ----------
    name, argument
        Of the bound; "{target}" in the argument stands for the largest cost that is refuted.
    refute
        Refutes one target.
    steps
        How the targets go up.
    instance
        A problem that has a schedule.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    options
        Time limit (10 minutes when None), progress.
    lower
        A proven bound of the cost: no smaller target is asked.

    Notes
    -----
    Where no schedule costs at most T, every schedule costs at least T + 1, as costs are integers. A target
    that stays open counts as too large.
    """
    clock = Clock(_SECONDS if options.time_limit is None else options.time_limit)
    start = best_bound(instance)
    known = low = max(start.value, lower)
    last = start.proof
    high, step, least = upper, (upper - known) * steps.first, (upper - known) * steps.last
    while low < high and step >= least and clock.left > 0:
        target = min(high - 1, low + int(step))
        proof = refute(target, clock.part(steps.share))
        if proof is not None:
            low, last = target + 1, proof
            options.progress(LogEntry(clock.elapsed, upper, low, last))
            step = min(2 * step, (high - low) / 2)
        else:
            high = target
            step = min(step, high - low) / 2
    if low == known:
        return replace(start, seconds=clock.elapsed)
    return Bound(low, name, argument.format(target=low - 1), clock.elapsed, last)
