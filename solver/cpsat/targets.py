"""Close the gap between bound and cost by deciding one target after another, instead of minimising.

For each target the question is whether there is a schedule that costs at most the target. If so, the schedule
is better than the incumbent's. If not, target + 1 is a bound.
"""

from __future__ import annotations

from math import inf

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import was_stopped
from tightpipe.core.metrics import cost
from tightpipe.core.params.proof import TargetParams

from ..incumbent import Incumbent
from ..run_search import TOO_LARGE
from ..two_sides import Side, Turns
from ..windows import Windows
from .decide import Decision, decide
from .race import SECONDS_OF_EFFORT


def ask_targets(instance: Instance, incumbent: Incumbent, effort: float, side: Side) -> Turns:
    """Decide targets between the incumbent's bound and cost until bound and cost meet or time is up.

    Parameters
    ----------
    instance
        The problem.
    incumbent
        The schedule and the bound to improve. A schedule within a target becomes its schedule, and a refuted
        target raises its bound.
    effort
        The limit of the first questions in CP-SAT's deterministic time, as in `race.search`. It is used only
        in a solve without any limit; otherwise each question gets a share of the time or effort left.
    side
        The limits of each question.

    Returns
    -------
    Turns
        One turn for each question.

    Notes
    -----
    The questions come in series. The first target of each series lies near the cost of the incumbent, because
    to refute such a target takes only a few times as long as to refute one near the bound. Where the first
    target stays open, the next targets bisect the range between the bound and the least target that was left
    open. When little is left between these two, the next series begins, with twice the effort and other
    seeds, because the time of a search varies widely with the seed.
    """
    questions = _Questions(instance, incumbent, effort, side.whole.params.targets)
    while not incumbent.closed and side.budget.left > 0:
        reason = questions.ask(side)
        if reason is not None:
            return reason
        yield questions.asked * SECONDS_OF_EFFORT
    return ""


class _Questions:
    """Asks about one target after another, and keeps the windows of those that stayed open."""

    def __init__(self, instance: Instance, incumbent: Incumbent, effort: float, params: TargetParams) -> None:
        self.instance, self.incumbent, self.params = instance, incumbent, params
        self.effort = effort  # effort of the next question in a solve without limits
        self.asked = effort  # effort of the last question
        self.ceiling: int | None = None  # the least target that the present effort has left open
        self.left_open: dict[int, Windows] = {}
        self.step = 0  # added to the seed, so that every question has seeds of its own
        self.few = max(1, int(params.last * (cost(incumbent.schedule) - incumbent.bound)))
        self.refused = cost(incumbent.schedule)  # the least target whose model was too large

    def ask(self, side: Side) -> str | None:
        """Ask the next question, and return None if more questions can be asked.

        Otherwise return why no more can be asked; the empty string stands for time that was up.
        """
        target, share = self._next_target()
        budget, self.asked = self._limits(side, max(self.params.shortest, share * side.left))
        wider = self.left_open.get(min((t for t in self.left_open if t >= target), default=target))
        decision = decide(
            *(self.instance, target, budget.reseeded(self.step), self.asked, wider),
            lambda: cost(self.incumbent.schedule) <= target,
        )
        self.step += side.threads
        return self._learn(target, decision)

    def _limits(self, side: Side, seconds: float) -> tuple[Budget, float]:
        """Return the budget of the next question and the limit of its effort.

        If the solve has a deadline, the question is limited by `seconds`; if the solve has a limit of effort,
        by the effort that corresponds to `seconds`; else by the present effort, which grows.
        """
        if not side.whole.endless:
            return side.budget.within(seconds), inf
        return side.budget, seconds / SECONDS_OF_EFFORT if side.whole.limited else self.effort

    def _next_target(self) -> tuple[int, float]:
        """Return the next target, and its share of the time or effort left, where these are limited."""
        best, bound = min(self.refused, cost(self.incumbent.schedule)), self.incumbent.bound
        gap = best - bound
        if self.ceiling is not None and min(self.ceiling, best) - bound <= self.params.little * gap:
            self.ceiling, self.effort = None, 2 * self.effort
        if self.ceiling is not None and self.ceiling < best:
            return bound + (self.ceiling - 1 - bound) // 2, self.params.short
        near = best - 1 if gap <= self.few else bound + int(self.params.near * (gap - 1))
        return near, self.params.long

    def _learn(self, target: int, decision: Decision) -> str | None:
        if decision.schedule is not None:
            self.incumbent.offer(decision.schedule)
        elif decision.possible is False:
            self.incumbent.prove(target + 1, decision.proof)
        elif decision.reason == TOO_LARGE:
            self.refused = target
            few = self.refused - self.incumbent.bound <= self.few
            return TOO_LARGE if few else None
        elif decision.windows is None or decision.reason:
            return decision.reason
        elif cost(self.incumbent.schedule) > target:
            self.ceiling, self.left_open[target] = target, decision.windows
        return decision.reason if was_stopped(decision.reason) else None
