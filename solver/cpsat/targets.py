"""Close the gap between bound and cost by deciding one target after another, instead of minimising.

For each target the question is whether there is a schedule that costs at most the target. If so, the schedule
is better than the incumbent's. If not, target + 1 is a bound.
"""

from __future__ import annotations

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import was_stopped
from tightpipe.core.metrics import cost

from ..progress import Incumbent
from ..run import TOO_LARGE
from ..windows import Windows
from .decide import decide

_LITTLE = 1 / 16  # of the gap: if no more lies between the bound and the open targets, the effort is raised


def ask_targets(instance: Instance, budget: Budget, incumbent: Incumbent, effort: float) -> str:
    """Decide targets between the bound and the cost of the incumbent until they meet or time is up.

    Parameters
    ----------
    instance
        The problem.
    budget
        The limits for all targets together; the deadline ends the last question.
    incumbent
        The schedule and the bound to improve. A schedule within a target becomes its schedule, and a refuted
        target raises its bound.
    effort
        The limit of the first questions in CP-SAT's deterministic time, as in `search`.

    Returns
    -------
    str
        Why the work ended early; empty if it did not, or if time was up.

    Notes
    -----
    Each target lies halfway between the bound and the least cost that a schedule has or that was left open.
    When little is left between these two, the open targets are asked again with twice the effort and other
    seeds, because the time of a search varies by factors.
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
            # A model that is too large now, after others were not, only means that time is nearly up.
            return "" if asked and decision.reason == TOO_LARGE else decision.reason
        else:
            ceiling, left_open[target] = target, decision.windows
        if was_stopped(decision.reason):
            return decision.reason
        asked = True
    return ""
