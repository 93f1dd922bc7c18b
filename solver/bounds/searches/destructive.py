"""Destructive bounds raise a bound by refuting one target after another: by shaving, or over prefixes.

A *target* is a cost that a search supposes. A target is refuted by a proof that no schedule costs at most the
target. Then every schedule costs at least one tick more, as costs are integers. A bound that is raised in
this way is called *destructive*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from tightpipe.model.instance import Instance
from tightpipe.model.result import Bound, LogEntry, Progress, Proof, ignore
from tightpipe.params.budget import Budget

from ...prefixes import Questions, answer_to
from ...queues import queues_of
from ...windows import shaved_windows
from ..formulas import best_bound

Refute = Callable[[int, Budget], Proof | None]
"""A function that tries to refute a target, given in ticks, within a budget.

It returns the kind of proof that refuted the target, or None if the target stays open.
"""


@dataclass(frozen=True, slots=True)
class Steps:
    """How far each target lies above the bound, and how much time each target gets.

    - `first`, `last`: the first and the least distance from the bound to the next target, as shares of the
      initial difference between cost and bound. The distance doubles after each refuted target, up to half of
      the difference that is left, and halves after each target that stays open. The search ends when the
      distance falls below the least distance. A first share of 1/2 makes a bisection.
    - `share`: the share of the remaining time that one target gets, so that a hard target leaves time for
      others.
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

    - `name`: name of the bound.
    - `argument`: sentence that says what is proven; "{target}" in it stands for the largest target that was
      refuted.
    - `refute`: tries to refute one target.
    - `steps`: the distances of targets from the bound, and the time for each target.
    - `instance`: a problem that has a schedule.
    - `upper`: the cost of a known schedule in ticks; no target is larger than upper - 1.
    - `budget`: the limits for all targets together; a search without a deadline ends after ten minutes.
    - `lower`: a proven bound of the cost in ticks; no target is smaller.
    - `progress`: called with each better bound.

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


def shaving_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by targets for which propagation and shaving leave no schedule.

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
    Every rule of `windows` holds for every schedule of cost at most a target T. Shaving supposes that one of
    two items runs before the other and propagates what follows. If this leads to a contradiction, the other
    item runs first. If both orders are contradictory, no schedule costs at most T, so every schedule costs at
    least T + 1. Low targets take little time for instances of any size, so the first target lies only a
    little above the known bound.
    """
    queues, params = queues_of(instance), budget.params.bounds
    steps = Steps(params.shaving_first, params.shaving_last, params.shaving_target)
    wider = None

    def refute(target: int, part: Budget) -> Proof | None:
        nonlocal wider
        windows = shaved_windows(queues, target, part, params.shaving_thorough, wider)
        if windows.feasible:
            wider = windows
        return None if windows.feasible else Proof.SHAVING

    argument = "propagation and shaving show that no schedule costs {target} or less"
    return destructive_bound("shaving", argument, refute, steps, instance, upper, budget, lower, progress)


_MOST = 10**9  # prefixes of one search, more than any time limit allows


def prefix_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by searching all prefixes of the schedules of a few devices.

    Parameters
    ----------
    instance
        A problem that has a schedule, for which `is_searchable` is true.
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
    The argument stands in `prefixes.search_prefixes`. `prefixes.Questions` chooses devices and targets.
    """
    begun, budget, params = perf_counter(), budget.with_deadline(), budget.params
    start = best_bound(instance)
    low, last = max(start.value, lower), start.proof
    questions = Questions(instance.devices, low, upper, params.prefixes)
    while budget.left > 0:
        question = questions.next(low, upper)
        if question is None:
            break
        answer, proof = answer_to(instance, question, budget.part(params.bounds.prefix_search), _MOST)
        questions.learn(question, answer)
        if answer.bound is not None and answer.bound > low:
            low, last = answer.bound, proof
            progress(LogEntry(perf_counter() - begun, upper, low, last))
    if low == max(start.value, lower):
        return replace(start, seconds=perf_counter() - begun)
    argument = f"a few devices cannot do their work at a cost of {low - 1} or less"
    return Bound(low, "prefixes", argument, perf_counter() - begun, last)
