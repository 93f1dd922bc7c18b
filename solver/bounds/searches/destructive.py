"""Destructive bounds: raise a bound target by target, as long as targets are refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress
from tightpipe.core.result import Bound, LogEntry, Proof

from ..formulas import best_bound

Refute = Callable[[int, Budget], Proof | None]
"""Prove within a budget that no schedule costs at most a target; None where that stays open."""


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
    budget: Budget,
    lower: int,
    progress: Progress,
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
    budget
        For all targets together; a search without a deadline ends after ten minutes.
    lower
        A proven bound of the cost: no smaller target is asked.
    progress
        Called with each better bound.

    Notes
    -----
    Where no schedule costs at most T, every schedule costs at least T + 1, as costs are integers. A target
    that stays open counts as too large.
    """
    begun, budget = perf_counter(), budget.with_deadline()
    start = best_bound(instance)
    known = low = max(start.value, lower)
    last = start.proof
    high, step, least = upper, (upper - known) * steps.first, (upper - known) * steps.last
    while low < high and step >= least and budget.left > 0:
        target = min(high - 1, low + int(step))
        proof = refute(target, budget.part(steps.share))
        if proof is not None:
            low, last = target + 1, proof
            progress(LogEntry(perf_counter() - begun, upper, low, last))
            step = min(2 * step, (high - low) / 2)
        else:
            high = target
            step = min(step, high - low) / 2
    if low == known:
        return replace(start, seconds=perf_counter() - begun)
    return Bound(low, name, argument.format(target=low - 1), perf_counter() - begun, last)
