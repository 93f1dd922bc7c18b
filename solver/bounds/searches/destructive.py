"""Destructive bounds: raise a bound by refuting one target after another.

A *target* is a cost that a search supposes. A target is refuted by a proof that no schedule costs at most the
target. Then every schedule costs at least one tick more, as costs are integers. A bound that is raised in
this way is called *destructive*.
"""

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
"""A function that tries to refute a target, given in ticks, within a budget.

It returns the kind of proof that refuted the target, or None if the target stays open.
"""


@dataclass(frozen=True, slots=True)
class Steps:
    """How far each target lies above the bound, and how much time each target gets.

    Parameters
    ----------
    first, last
        The first and the least distance from the bound to the next target, as shares of the initial
        difference between cost and bound. The distance doubles after each refuted target, up to half of the
        difference that is left, and halves after each target that stays open. The search ends when the
        distance falls below the least distance. A first share of 1/2 makes a bisection.
    share
        The share of the remaining time that one target gets, so that a hard target leaves time for others.
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
    """Return the bound from the largest refuted target, or from the best closed formula if none is refuted.

    Parameters
    ----------
    name
        Name of the bound.
    argument
        Sentence that says what is proven; "{target}" in it stands for the largest target that was refuted.
    refute
        Tries to refute one target.
    steps
        The distances of targets from the bound, and the time for each target.
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
    If no schedule costs at most a target T, every schedule costs at least T + 1, as costs are integers. A
    target that stays open counts as too large: all later targets are smaller.
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
