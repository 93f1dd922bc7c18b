"""The decision version: is there a schedule of cost at most T?"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.result import Proof
from tightpipe.core.schedule import Schedule

from ..memory import MemoryCap
from ..queues import queues_of
from ..windows import Windows, shaved_windows
from .lattice.model import LatticeModel
from .search import search
from .size import lattice_refusal

_SHARE = 0.3  # of the time left that the windows may take


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to "is there a schedule of cost at most T?".

    Parameters
    ----------
    possible
        True with a `schedule`, False when refuted, None when open.
    schedule
        A valid schedule of cost at most T, or None.
    reason
        Why it is open, empty when time was up; or what signal ended the search, whatever the answer.
    windows
        Of an open one: a start for the next question about this target or a lower one.
    proof
        What refuted it, or None.
    """

    possible: bool | None
    schedule: Schedule | None = None
    reason: str = ""
    windows: Windows | None = None
    proof: Proof | None = None


def decide(
    instance: Instance, target: int, budget: Budget, effort: float = inf, wider: Windows | None = None
) -> Decision:
    """Look for a schedule of cost at most `target`, or prove that there is none.

    Unlike minimising, where the horizon is the incumbent's cost, the horizon is the target itself: it
    decides many orders before the search begins.

    Parameters
    ----------
    instance
        A problem that has a schedule.
    target
        Cost in ticks.
    budget
        For windows, model and search together.
    effort
        Deterministic time of the search, as in `search`.
    wider
        Feasible windows of a target that is no lower; those of the same target are not shaved again.
    """
    queues = queues_of(instance)
    if wider is not None and wider.horizon == target:
        windows = wider
    else:
        windows = shaved_windows(queues, target, budget.part(_SHARE), wider=wider)
    if not windows.feasible:
        return Decision(False, proof=Proof.SHAVING)
    if refusal := lattice_refusal(windows, budget.left, MemoryCap(budget.max_memory)):
        return Decision(None, reason=refusal)
    model = LatticeModel(queues, windows, 0, minimise=False)
    if budget.left <= 0:
        return Decision(None)
    found = search(model, budget, lambda *_: None, effort=effort)
    if found.schedule is not None:
        return Decision(True, found.schedule, found.reason)
    if found.exhausted:
        return Decision(False, reason=found.reason, proof=Proof.CP_SAT)
    return Decision(None, reason=found.reason, windows=windows)


def refute(instance: Instance, target: int, budget: Budget) -> bool | None:
    """Whether it is proven that no schedule costs at most `target`: False when one does, None when open."""
    possible = decide(instance, target, budget).possible
    return None if possible is None else not possible
