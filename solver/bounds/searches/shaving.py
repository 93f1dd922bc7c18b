"""A destructive lower bound by shaving: the largest target whose windows come out empty."""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.options import Options
from tightpipe.core.result import Bound, Proof

from ...clock import Clock
from ...queues import queues_of
from ...windows import shaved_windows
from .destructive import Steps, destructive_bound

_STEPS = Steps(first=1 / 8, last=1 / 512, share=0.4)
_THOROUGH = 240  # deeper sweeps take longer than they bring


def shaving_bound(instance: Instance, upper: int, options: Options, lower: int = 0) -> Bound:
    """Bound the cost by targets T for which propagation and shaving leave no schedule.

    Parameters
    ----------
    instance
        A problem that has a schedule, without overlapped operations or flushed iterations.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    options
        Time limit (10 minutes when None), threads, progress.
    lower
        A proven bound of the cost: no smaller target is asked.

    Notes
    -----
    Every rule of `windows` holds for every schedule of cost at most T; when one side of an order leads
    to a contradiction, the other side holds; when both do, no schedule costs at most T, so every
    schedule costs at least T + 1. Fused backwards are dominated by split ones (`queues`). Low targets take
    little time at any size, so the first step is a small one.
    """
    queues = queues_of(instance)
    wider = None

    def refute(target: int, clock: Clock) -> Proof | None:
        nonlocal wider
        windows = shaved_windows(queues, target, options.threads, clock, _THOROUGH, wider)
        if windows.feasible:
            wider = windows
        return None if windows.feasible else Proof.SHAVING

    argument = "propagation and shaving show that no schedule costs {target} or less"
    return destructive_bound("shaving", argument, refute, _STEPS, instance, upper, options, lower)
