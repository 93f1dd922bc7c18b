"""A destructive lower bound that refutes targets with CP-SAT, by bisection."""

from __future__ import annotations

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import raise_again
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Bound, Proof

from ..bounds.searches.destructive import Steps, destructive_bound
from .decide import decide


def refutation_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by targets for which CP-SAT proves that no schedule costs at most the target.

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
    The targets bisect the interval between the best bound and the least target that was left open, which is
    `upper` at first. Where an exhaustive search ends without a schedule of cost at most a target T,
    every schedule costs at least T + 1.
    """

    def refute(target: int, part: Budget) -> Proof | None:
        decision = decide(instance, target, part)
        raise_again(decision.ended.text)
        return decision.proof

    params = budget.params.bounds
    steps = Steps(params.refutation_first, params.refutation_last, params.refutation_target)
    argument = "an exhaustive search shows that no schedule costs {target} or less"
    return destructive_bound("refutation", argument, refute, steps, instance, upper, budget, lower, progress)
