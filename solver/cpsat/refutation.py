"""A destructive lower bound: the largest target that is refuted, found by bisection."""

from __future__ import annotations

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import raise_again
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Bound, Proof

from ..bounds.searches.destructive import Steps, destructive_bound
from .decide import decide

_STEPS = Steps(first=1 / 2, last=0, share=0.5)


def refutation_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by refuting "cost <= T" for ever larger T.

    Parameters
    ----------
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
    Bisection between the best bound and `upper`; where an exhaustive search ends without a schedule of cost
    at most T, every schedule costs at least T + 1.
    """

    def refute(target: int, part: Budget) -> Proof | None:
        decision = decide(instance, target, part)
        raise_again(decision.reason)
        return decision.proof

    argument = "an exhaustive search shows that no schedule costs {target} or less"
    return destructive_bound("refutation", argument, refute, _STEPS, instance, upper, budget, lower, progress)
