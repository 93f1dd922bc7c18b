"""The decision version of the problem: is there a schedule of cost at most a target?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.result import Proof
from tightpipe.core.schedule import Schedule

from ..memory_cap import MemoryCap
from ..outcome import FINISHED, Ended
from ..queues import queues_of
from ..windows import Windows, shaved_windows
from .lattice.model import LatticeModel
from .race import search
from .size import lattice_refusal


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to the question whether there is a schedule of cost at most a target.

    Parameters
    ----------
    possible
        True if a schedule was found, False if the target was refuted, None if the question is open.
    schedule
        A valid schedule of cost at most the target, or None.
    ended
        Why the question is open, `FINISHED` if time was up. If a signal ended the search, this says so,
        whatever the answer is.
    windows
        Windows from which the next question about this target or a lower one can start. None if the question
        is settled, or if time was up before the search began.
    proof
        The kind of proof that refuted the target, or None.
    """

    possible: bool | None
    schedule: Schedule | None = None
    ended: Ended = FINISHED
    windows: Windows | None = None
    proof: Proof | None = None


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
    if found.schedule is not None:
        return Decision(True, found.schedule, found.ended)
    if found.exhausted:
        return Decision(False, ended=found.ended, proof=Proof.CP_SAT)
    return Decision(None, ended=found.ended, windows=windows)


def refute(instance: Instance, target: int, budget: Budget) -> bool | None:
    """Return whether no schedule costs at most `target` ticks, None if the budget does not settle it."""
    possible = decide(instance, target, budget).possible
    return None if possible is None else not possible
