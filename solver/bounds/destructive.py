"""Destructive bounds raise a bound by refuting one target after another.

A *target* is a cost that a search supposes. A target is refuted by a proof that no schedule costs at most the
target. Then every schedule costs at least one tick more, as costs are integers. A bound that is raised in
this way is called *destructive*. Here targets are refuted by energetic reasoning, by shaving, or over all
prefixes of the schedules of a few devices. The searches take what `engine.run.Search` names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

from tightpipe.model.instance import Instance
from tightpipe.model.result import Bound, LogEntry, Progress, Proof, ignore
from tightpipe.params.budget import Budget

from ..prefixes import Questions, answer_to
from ..queues import pairs_of, queues_of
from ..windows import Windows, shaved_windows, windows_of
from .energetic_kernel import overload_of
from .formulas import best_bound
from .relaxed import is_searchable

_PACE = 1e-7
"""Seconds that energetic reasoning about a target takes for each pair of operations that share a device."""
_LONGEST = 600.0  # such seconds, of a search without any limit
Refute = Callable[[int, Budget], Proof | None]
"""Tries to refute a target, in ticks, within a budget; returns the kind of proof, None if it stays open."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How far each target lies above the bound, and how much time each target gets.

    - `first`, `last`: the first and the least distance from the bound to the next target, as shares of the
      initial difference between cost and bound. The distance doubles after each refuted target, up to half of
      what is left, and halves after each that stays open; below the least one the search ends. A first share
      of 1/2 makes a bisection.
    - `share`: the share of the time left that one target gets, so that a hard one leaves time for others.
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

    In `argument`, the sentence that says what is proven, "{target}" stands for the largest refuted target. A
    target that stays open counts as too large: all later targets are smaller. A search without a deadline
    ends after ten minutes.
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


def energetic_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by refuting targets under which some device has more work than time between two times.

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

    Without a deadline the search counts its targets and reads no clock.
    """
    begun, effort = perf_counter(), 0.0
    budget = budget.shortened(_LONGEST) if budget.endless else budget
    start = best_bound(instance)
    known = low = max(start.value, lower)
    high, target, step = upper, upper - 1, 1
    queues, devices, wider = queues_of(instance), list(reversed(range(instance.devices))), None
    while low < high and budget.left > 0 and effort < budget.effort:
        effort += _PACE * pairs_of(instance)
        windows = windows_of(queues, target, budget, wider)
        excess = _excess(windows, devices, budget)
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


def _excess(windows: Windows, devices: list[int], budget: Budget) -> int:
    """Return the excess, in ticks, of the first overloaded device, 1 for contradictory windows, 0 for none.

    That device moves to the front of `devices`, so that the next call tries it first. Devices for which the
    time does not suffice count as not overloaded: 128 devices with 1024 microbatches take a minute in all.
    """
    if not windows.feasible:
        return 1
    for device in devices:
        if budget.left <= 0:
            break
        excess = overload_of(windows, device)
        if excess > 0:
            devices.remove(device)
            devices.insert(0, device)
            return excess
    return 0


def shaving_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by targets for which propagation and shaving leave no schedule.

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

    Notes
    -----
    The argument stands in `prefixes.search_prefixes`. `prefixes.Questions` chooses the devices. The
    result is a formula's where `is_searchable` is false.
    """
    begun, budget, params = perf_counter(), budget.with_deadline(), budget.params
    start = best_bound(instance)
    if not is_searchable(instance):
        return start
    low, last = max(start.value, lower), start.proof
    questions = Questions(instance.devices, low, upper, params.prefixes)
    while low < upper and budget.left > 0:
        question = questions.next(upper)
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
