"""Close the gap between bound and cost by deciding one target after another, instead of minimising.

For each target the question is whether there is a schedule that costs at most the target. If so, the schedule
is better than the incumbent's. If not, target + 1 is a bound.
"""

from __future__ import annotations

from math import inf

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.params.proof import TargetParams

from ..engine.incumbent import Incumbent
from ..engine.worker import Worker
from ..outcome import FINISHED, End, Ended, Outcome, Worked
from ..windows import Windows
from .decide import Decision, decide
from .race import SECONDS_OF_EFFORT


class Targets:
    """Decides targets between the incumbent's bound and cost until these meet or time is up, one a step.

    Parameters
    ----------
    instance
        The problem.
    incumbent
        The schedule and the bound to improve. A schedule within a target becomes its schedule, and a refuted
        target raises its bound.
    params
        How targets are chosen, and how the time is shared.
    effort
        The limit of the first questions in CP-SAT's deterministic time, as in `race.search`. It is used only
        in a solve without any limit; otherwise each question gets a share of the time or effort left.

    Notes
    -----
    The questions come in series. The first target of each series lies near the cost of the incumbent, because
    to refute such a target takes only a few times as long as to refute one near the bound. Where the first
    target stays open, the next targets bisect the range between the bound and the least target that was left
    open. When little is left between these two, the next series begins, with twice the effort and other
    seeds, because the time of a search varies widely with the seed.
    """

    def __init__(self, instance: Instance, incumbent: Incumbent, params: TargetParams, effort: float) -> None:
        self.instance, self.incumbent, self.params = instance, incumbent, params
        self.effort = effort  # effort of the next question in a solve without limits
        self.asked = effort  # effort of the last question
        self.ceiling: int | None = None  # the least target that the present effort has left open
        self.left_open: dict[int, Windows] = {}
        self.step_number = 0  # added to the seed, so that every question has seeds of its own
        self.few = max(1, int(params.last * (incumbent.cost - incumbent.bound)))
        self.refused = incumbent.cost  # the least target whose model was too large

    def step(self, worker: Worker) -> Outcome:
        """Decide the next target."""
        if self.incumbent.closed or worker.budget.left <= 0:
            return FINISHED
        target, share = self._next_target()
        budget, self.asked = self._limits(worker, max(self.params.shortest, share * worker.expected))
        wider = self.left_open.get(min((t for t in self.left_open if t >= target), default=target))
        decision = decide(
            *(self.instance, target, budget.reseeded(self.step_number), self.asked, wider),
            lambda: self.incumbent.cost <= target,
        )
        self.step_number += worker.threads
        return self._learn(target, decision) or Worked(self.asked * SECONDS_OF_EFFORT)

    def _limits(self, worker: Worker, seconds: float) -> tuple[Budget, float]:
        """Return the budget of the next question and the limit of its effort.

        If the solve has a deadline, the question is limited by `seconds`; if the solve has a limit of effort,
        by the effort that corresponds to `seconds`; else by the present effort, which grows.
        """
        if not worker.whole.endless:
            return worker.budget.within(seconds), inf
        return worker.budget, seconds / SECONDS_OF_EFFORT if worker.whole.limited else self.effort

    def _next_target(self) -> tuple[int, float]:
        """Return the next target, and its share of the time or effort left, where these are limited."""
        best, bound = min(self.refused, self.incumbent.cost), self.incumbent.bound
        gap = best - bound
        if self.ceiling is not None and min(self.ceiling, best) - bound <= self.params.little * gap:
            self.ceiling, self.effort = None, 2 * self.effort
        if self.ceiling is not None and self.ceiling < best:
            return bound + (self.ceiling - 1 - bound) // 2, self.params.short
        near = best - 1 if gap <= self.few else bound + int(self.params.near * (gap - 1))
        return near, self.params.long

    def _learn(self, target: int, decision: Decision) -> Ended | None:
        """Take over what a decision says, and return the end of this member if it asks no more."""
        if decision.schedule is not None:
            self.incumbent.offer(decision.schedule)
        elif decision.possible is False:
            self.incumbent.prove(target + 1, decision.proof)
        elif decision.ended.end is End.TOO_LARGE:
            self.refused = target
            few = self.refused - self.incumbent.bound <= self.few
            return decision.ended if few else None
        elif decision.windows is None or decision.ended.early:
            return decision.ended
        elif self.incumbent.cost > target:
            self.ceiling, self.left_open[target] = target, decision.windows
        return decision.ended if decision.ended.stopped else None
