"""A destructive lower bound by shaving: a target is refuted where shaving leaves no schedule."""

from __future__ import annotations

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Bound, Proof

from ...queues import queues_of
from ...windows import shaved_windows
from .destructive import Steps, destructive_bound


def shaving_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by targets for which propagation and shaving leave no schedule.

    Parameters
    ----------
    instance
        A problem that has a schedule, without operations that overlap and without flushes.
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
    least T + 1. Fused backwards are left out, as split ones are never worse (`queues`). Low targets take
    little time for instances of any size, so the first target lies only a little above the known bound.
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
