"""A destructive lower bound: the largest target that is refuted, found by bisection."""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.interruption import raise_again
from tightpipe.core.options import Options
from tightpipe.core.result import Bound, Proof

from ..bounds.searches.destructive import Steps, destructive_bound
from ..clock import Clock
from .decide import decide

_STEPS = Steps(first=1 / 2, last=0, share=0.5)


def refutation_bound(instance: Instance, upper: int, options: Options, lower: int = 0) -> Bound:
    """Bound the cost by refuting "cost <= T" for ever larger T.

    Parameters
    ----------
    instance
        A problem that has a schedule.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    options
        Time limit (10 minutes when None), threads, seed, progress.
    lower
        A proven bound of the cost: no smaller target is asked.

    Notes
    -----
    Bisection between the best bound and `upper`; where an exhaustive search ends without a schedule of cost
    at most T, every schedule costs at least T + 1.
    """

    def refute(target: int, clock: Clock) -> Proof | None:
        decision = decide(instance, target, clock.limit(options))
        raise_again(decision.reason)
        return decision.proof

    argument = "an exhaustive search shows that no schedule costs {target} or less"
    return destructive_bound("refutation", argument, refute, _STEPS, instance, upper, options, lower)
