"""The method ``milp``: prove or improve a schedule with a mixed-integer solver."""

from __future__ import annotations

import pulp

from tightpipe.core.budget import Budget
from tightpipe.core.errors import DeadlockError, InputError
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Proof, Result
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule
from tightpipe.core.validate import validate

from ..memory import MemoryCap
from ..progress import Incumbent
from ..queues import Queues, queues_of
from ..run import TOO_LARGE, run_search
from ..start import in_queue_order
from ..windows import Windows, shaved_windows
from .backend import Backend, proven_cost
from .cbc import run_cbc
from .estimate import refuse_if_not_modelled, refuse_if_too_large, size_of
from .highs import run_highs
from .model import MilpModel, Value

BACKENDS: dict[str, Backend] = {"highs": run_highs, "cbc": run_cbc}
_SECONDS_PER_BINARY = 2e-4  # building the rows of one order binary and handing them to the backend
_SECONDS_FOR_WINDOWS = 10.0  # more would not make an instance small enough
_SHARE = 0.5  # of the time left that building may take


def solve_milp(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    lower_bound: int | None = None,
    progress: Progress = ignore,
    *,
    backend: str = "highs",
) -> Result:
    """Find the cheapest schedule that a mixed-integer solver can find and prove within the limits.

    Parameters
    ----------
    instance
        The problem.
    budget
        For all of the work; Ctrl-C and the memory cap end it early.
    warm_start
        A valid schedule; it is the first incumbent, and its cost makes every big-M. Without one,
        microbatch after microbatch is.
    lower_bound
        A proven bound of the cost, used if it is better than those of `bounds`.
    progress
        Called with each new incumbent or bound.
    backend
        `highs`, or `cbc`, the program that comes with PuLP.

    Raises
    ------
    InputError
        If the backend is unknown; if the instance is too large, with an estimate of the model's size; if
        it has what the model leaves out; if the warm start is not a valid schedule of it.
    """
    if backend not in BACKENDS:
        raise InputError(f"must be one of {', '.join(BACKENDS)}", key="backend", value=backend)
    refuse_if_not_modelled(instance)
    return run_search(
        *("milp", instance, budget, warm_start, lower_bound, progress),
        lambda incumbent: _run(instance, budget, incumbent, BACKENDS[backend]),
        program=backend,
        failures=(MemoryError, RuntimeError, OSError, pulp.PulpError),
    )


def _run(instance: Instance, budget: Budget, incumbent: Incumbent, backend: Backend) -> str:
    """Build and solve the model; return why it ended early."""
    queues = queues_of(instance)
    windows = _windows(queues, budget, incumbent)
    if windows.undecided * _SECONDS_PER_BINARY > budget.left * _SHARE:
        return TOO_LARGE
    size = size_of(queues, windows.undecided)
    if refusal := MemoryCap(budget.max_memory).refusal(size.megabytes * 2**20):
        return refusal
    model = MilpModel(queues, windows, incumbent.bound)
    model.set_start(in_queue_order(incumbent.schedule), cost(incumbent.schedule))
    if budget.left <= 0:
        return ""
    watch = _Watch(model, incumbent)
    return backend(model, budget, watch) or watch.problem


def _windows(queues: Queues, budget: Budget, incumbent: Incumbent) -> Windows:
    """Return the windows under the incumbent's cost.

    Raises
    ------
    InputError
        If the model that they leave is too large.
    """
    incumbent.offer(in_queue_order(incumbent.schedule))
    part = budget.part(_SHARE).within(_SECONDS_FOR_WINDOWS)
    windows = shaved_windows(queues, cost(incumbent.schedule), part)
    refuse_if_too_large(size_of(queues, windows.undecided))
    return windows


class _Watch:
    """Re-times, checks and keeps what a backend finds."""

    def __init__(self, model: MilpModel, incumbent: Incumbent) -> None:
        self._model, self._incumbent = model, incumbent
        self.problem = ""

    def solution(self, value: Value) -> None:
        """Offer the schedule of a solution to the incumbent."""
        instance = self._model.instance
        try:
            schedule = retime(instance, self._model.order(value))
        except (DeadlockError, LookupError) as error:  # a LookupError where a W is before its B
            self.problem = f"the backend returned an order that deadlocks: {error}"
            return
        violations = validate(instance, schedule)
        if violations:
            self.problem = f"the backend returned an invalid schedule: {violations[0]}"
        else:
            self._incumbent.offer(schedule)

    def bound(self, value: float) -> None:
        """Offer a dual bound to the incumbent."""
        self._incumbent.prove(proven_cost(value), Proof.MILP)
