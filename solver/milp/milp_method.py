"""The method ``milp``: prove or improve a schedule with a mixed-integer solver."""

from __future__ import annotations

import pulp

from tightpipe.core.budget import Budget
from tightpipe.core.errors import DeadlockError
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Proof, Result
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule
from tightpipe.core.validate import validate

from ..engine.incumbent import Incumbent
from ..engine.run import run
from ..memory_cap import MemoryCap
from ..outcome import FINISHED, TOO_LARGE, End, Ended
from ..queues import Queues, queues_of
from ..start import in_queue_order
from ..windows import Windows, shaved_windows
from .estimate import refuse_if_not_modelled, refuse_if_too_large, size_of
from .highs import proven_cost, run_highs
from .model import MilpModel, Value


def solve_milp(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    lower_bound: int | None = None,
    progress: Progress = ignore,
) -> Result:
    """Search for the cheapest schedule with HiGHS, and prove a bound of the cost.

    Parameters
    ----------
    instance
        The problem.
    budget
        The limits for all of the work; Ctrl-C and the memory cap end it early.
    warm_start
        A valid schedule, which is the first incumbent. The lower its cost, the smaller are the big-M's. None
        to start from the schedule that runs one microbatch after another.
    lower_bound
        A proven lower bound of the cost in ticks, used if it is larger than the bounds of `bounds.formulas`.
    progress
        Called with each new incumbent or bound.

    Raises
    ------
    InputError
        If the instance is too large or has a rule that the model leaves out, or the warm start is not a
        valid schedule of the instance. For a large instance the message has an estimate of the model's size.
    """
    refuse_if_not_modelled(instance)
    return run(
        *("milp", instance, budget, warm_start, lower_bound, progress),
        lambda incumbent: _run(instance, budget, incumbent),
        program="HiGHS",
        failures=(MemoryError, RuntimeError, OSError, pulp.PulpError),
    )


def _run(instance: Instance, budget: Budget, incumbent: Incumbent) -> Ended:
    """Build and solve the model, and return how this ended."""
    queues, params = queues_of(instance), budget.params.milp
    windows = _windows(queues, budget, incumbent)
    if windows.undecided * params.seconds_per_binary > budget.left * params.share:
        return TOO_LARGE
    size = size_of(queues, windows.undecided)
    if refusal := MemoryCap(budget.max_memory).refusal(size.megabytes * 2**20):
        return refusal
    model = MilpModel(queues, windows, incumbent.bound)
    model.set_start(in_queue_order(incumbent.schedule), incumbent.cost)
    if budget.left <= 0:
        return FINISHED
    watch = _Watch(model, incumbent)
    ended = run_highs(model, budget, watch)
    return ended if ended.early else watch.ended


def _windows(queues: Queues, budget: Budget, incumbent: Incumbent) -> Windows:
    """Return the windows whose horizon is the incumbent's cost.

    Raises
    ------
    InputError
        If a model with a binary for every order that the windows leave open would be too large.
    """
    incumbent.offer(in_queue_order(incumbent.schedule))
    params = budget.params.milp
    part = budget.part(params.share).within(params.windows_seconds)
    windows = shaved_windows(queues, incumbent.cost, part)
    refuse_if_too_large(size_of(queues, windows.undecided), budget.params.milp.most_megabytes)
    return windows


class _Watch:
    """Validates the schedules of the solutions of HiGHS, and offers them and its bounds to the incumbent."""

    def __init__(self, model: MilpModel, incumbent: Incumbent) -> None:
        self._model, self._incumbent = model, incumbent
        self.ended = FINISHED

    def solution(self, value: Value) -> None:
        """Offer the schedule of a solution to the incumbent."""
        instance = self._model.instance
        try:
            schedule = retime(instance, self._model.order(value))
        except (DeadlockError, LookupError) as error:  # a LookupError means that a W comes before its B
            self.ended = Ended(End.FAILED, f"HiGHS returned an order that deadlocks: {error}")
            return
        violations = validate(instance, schedule)
        if violations:
            self.ended = Ended(End.FAILED, f"HiGHS returned an invalid schedule: {violations[0]}")
        else:
            self._incumbent.offer(schedule)

    def bound(self, value: float) -> None:
        """Give the incumbent the bound that follows from a dual bound of the cost."""
        self._incumbent.prove(proven_cost(value), Proof.MILP)
