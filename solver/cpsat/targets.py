"""The decision version of the problem: is there a schedule of cost at most a target? And who asks it.

`decide` answers the question with CP-SAT. If there is such a schedule, it is better than the incumbent's. If
there is none, target + 1 is a bound. `Targets` closes the gap between bound and cost by asking about one
target after another, instead of minimising, and `refutation_bound` raises a bound alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from tightpipe.base.interruption import raise_again
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.result import Bound, Progress, Proof, ignore
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget
from tightpipe.params.proof import TargetParams

from ..bounds.destructive import Steps, destructive_bound
from ..engine.portfolio import Worker
from ..engine.run import Incumbent
from ..outcome import FINISHED, End, Ended, Outcome, Worked
from ..programs import MemoryCap
from ..queues import queues_of
from ..windows import Windows, shaved_windows
from .lattice import LatticeModel
from .race import SECONDS_OF_EFFORT, lattice_refusal, search


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to the question whether there is a schedule of cost at most a target.

    `windows` are those from which the next question about this target or a lower one can start.
    """

    possible: bool | None  #: True if a schedule was found, False if there is none, None if that stays open
    #: a valid schedule: of cost at most the target where it is possible, and dearer where that stays open,
    #: because the model left something out
    schedule: Schedule | None = None
    ended: Ended = FINISHED  #: why the question is open; if a signal ended the search, it says so in any case
    windows: Windows | None = None  #: None if the question is settled, or time was up before the search
    proof: Proof | None = None  #: the kind of proof that refuted the target


def decide(
    instance: Instance,
    target: int,
    budget: Budget,
    effort: float = inf,
    wider: Windows | None = None,
    moot: Callable[[], bool] = lambda: False,
) -> Decision:
    """Look for a schedule of cost at most `target`, or prove that there is none.

    The horizon of the model is the target itself, and thus shorter than when the cost is minimised, where it
    lies just below the incumbent's cost. The shorter horizon decides many orders before the search begins.

    Parameters
    ----------
    instance
        A problem that has a schedule.
    target
        The target, in ticks.
    budget
        The limits for windows, model and search together.
    effort
        The limit of the search in CP-SAT's deterministic time, as in `search`.
    wider
        Feasible windows of this target or a higher one, to start from. Windows of this target are not shaved
        again.
    moot
        As in `search`: when it returns True, the search ends, and the question stays open.
    """
    queues, params = queues_of(instance), budget.params.cpsat
    if wider is not None and wider.horizon == target:
        windows = wider
    else:
        windows = shaved_windows(queues, target, budget.part(params.target_windows), wider=wider)
    if not windows.feasible:
        return Decision(False, proof=Proof.SHAVING)
    if refusal := lattice_refusal(windows, budget.left, MemoryCap(budget.max_memory), params):
        return Decision(None, ended=refusal, windows=windows)
    model = LatticeModel(queues, windows, 0, minimise=False, much_idle=params.much_idle)
    if budget.left <= 0:
        return Decision(None)
    found = search(model, budget, lambda *_: None, effort=effort, moot=moot)
    if found.schedule is not None and cost(found.schedule) <= target:
        return Decision(True, found.schedule, found.ended)
    if found.schedule is None and found.exhausted:
        return Decision(False, ended=found.ended, proof=Proof.CP_SAT)
    return Decision(None, found.schedule, found.ended, windows)


class Targets:
    """Decides targets between the incumbent's bound and cost until these meet or time is up, one a step.

    - `incumbent`: the schedule and the bound to improve. A schedule within a target becomes its schedule, and
      a refuted target raises its bound.
    - `params`: how targets are chosen, and how the time is shared.
    - `effort`: the limit of the first questions in CP-SAT's deterministic time, as in `race.search`. It is
      used only in a solve without any limit; otherwise each question gets a share of the time or effort left.

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
        self.incumbent.offer(decision.schedule)
        if decision.possible is False:
            self.incumbent.prove(target + 1, decision.proof)
        elif decision.ended.end is End.TOO_LARGE:
            self.refused = target
            few = self.refused - self.incumbent.bound <= self.few
            return decision.ended if few else None
        elif not decision.possible and (decision.windows is None or decision.ended.early):
            return decision.ended
        elif decision.windows is not None and self.incumbent.cost > target:
            self.ceiling, self.left_open[target] = target, decision.windows
        return decision.ended if decision.ended.stopped else None


def refutation_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by targets for which CP-SAT proves that no schedule costs at most the target.

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
