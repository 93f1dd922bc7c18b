"""Close a gap by asking for one target after another: the decision version in place of minimising."""

from __future__ import annotations

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import was_stopped
from tightpipe.core.metrics import cost

from ..progress import Incumbent
from ..run import TOO_LARGE
from ..windows import Windows
from .decide import decide

_LITTLE = 1 / 16  # of the gap: what is left when the next questions are worth more effort


def ask_targets(instance: Instance, budget: Budget, incumbent: Incumbent, effort: float) -> str:
    """Ask whether targets between bound and incumbent can be kept; return why it ended early.

    Parameters
    ----------
    instance
        The problem.
    budget
        Its deadline ends the last question.
    incumbent
        What is known; a schedule that keeps a target replaces its schedule, a refuted target its bound.
    effort
        Deterministic time of each question, as in `search`.

    Notes
    -----
    Each target lies halfway between the bound and what is known to be possible, or was left open. When little
    is left between the two, all is asked again with twice the effort and another seed: the time of a search
    varies by factors.
    """
    ceiling = cost(incumbent.schedule)
    asked = False
    left_open: dict[int, Windows] = {}
    while not incumbent.closed and budget.left > 0:
        best, bound = cost(incumbent.schedule), incumbent.bound
        if asked and min(ceiling, best) - bound <= _LITTLE * (best - bound):
            ceiling, effort, budget = best, 2 * effort, budget.reseeded(budget.threads)
        ceiling = min(ceiling, best)
        target = bound + (ceiling - 1 - bound) // 2
        wider = left_open.get(min((above for above in left_open if above >= target), default=target))
        decision = decide(instance, target, budget, effort, wider)
        if decision.schedule is not None:
            incumbent.offer(decision.schedule)
        elif decision.possible is False:
            incumbent.prove(target + 1, decision.proof)
        elif decision.windows is None or decision.reason:
            # what is too large now was not before: time is nearly up
            return "" if asked and decision.reason == TOO_LARGE else decision.reason
        else:
            ceiling, left_open[target] = target, decision.windows
        if was_stopped(decision.reason):
            return decision.reason
        asked = True
    return ""
