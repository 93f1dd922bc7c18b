"""The method ``milp``: prove or improve a schedule with a mixed-integer solver."""

from __future__ import annotations

from dataclasses import dataclass

import pulp

from tightpipe.base.errors import DeadlockError, InputError
from tightpipe.model.graph import graph_of
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.result import Progress, Proof, Result, ignore
from tightpipe.model.schedule import Schedule
from tightpipe.model.simulate import retime
from tightpipe.model.validate import validate
from tightpipe.params.budget import Budget

from ..engine.incumbent import Incumbent
from ..engine.run import in_queue_order, run
from ..memory_cap import MemoryCap
from ..outcome import FINISHED, TOO_LARGE, End, Ended
from ..queues import Queues, Rule, queues_of, refuse_unmodelled
from ..windows import Windows, shaved_windows, windows_of_edges
from .highs import proven_cost, run_highs
from .model import MilpModel, Value

_ROWS_PER_BINARY = 4  # two big-M rows, and two rows of `Constraints.lattice`
_ROWS_PER_ITEM = 7  # sequence, precedence, two for its window in the frame, work before and after it, memory
_KILOBYTES_PER_BINARY = 28.0  # measured: 9 in PuLP, and 19 in HiGHS at the root of its search
_KILOBYTES_PER_ITEM = 28.0


@dataclass(frozen=True, slots=True)
class Size:
    """The estimated size of a model."""

    binaries: int  #: most binaries: for orders of two items, and for what runs jointly
    continuous: int  #: number of start times
    constraints: int  #: number of rows

    @property
    def megabytes(self) -> int:
        """Memory that the model takes in PuLP and at the root of the backend's search, in 2**20 bytes."""
        kilobytes = self.binaries * _KILOBYTES_PER_BINARY + self.continuous * _KILOBYTES_PER_ITEM
        return round(kilobytes / 1024)

    def __str__(self) -> str:
        return (
            f"{self.binaries} order binaries, {self.continuous} start times and {self.constraints} "
            f"constraints, about {self.megabytes} MB"
        )


def size_of(queues: Queues, binaries: int) -> Size:
    """Return the size of a model with at most so many binaries.

    There is one for each pair of items whose order is open; with joint operations at most one more for each.
    """
    items = sum(queue.count for queue in queues.queues)
    return Size(binaries, items, _ROWS_PER_BINARY * binaries + _ROWS_PER_ITEM * items)


def refuse_if_too_large(size: Size, most: int) -> None:
    """Raise an error if a model would take too much memory.

    Raise an InputError if the model would take more than `most` times 2**20 bytes. The message gives the
    estimate and this cap.
    """
    if size.megabytes > most:
        rule = f"too large for milp: {size}; the cap is {most} MB"
        raise InputError(rule, key="instance")


def refuse_busy_links(instance: Instance) -> None:
    """Raise an InputError if a message may have to wait for its link, which the model leaves out."""
    if arrays_of(instance).links:
        rule = "milp does not model messages that wait for their link; leave it out, or use cpsat"
        raise InputError(rule, key="link_occupancy", value=instance.costs.link_occupancy)


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
        If the instance has offload, is too large or messages may have to wait for their links, or the warm
        start is not a valid schedule of the instance. For a large instance the message has an estimate of the
        model's size.
    """
    refuse_unmodelled("milp", instance, *(rule for rule in Rule if rule is not Rule.OFFLOAD))
    refuse_busy_links(instance)
    return run(
        *("milp", instance, budget, warm_start, lower_bound, progress),
        lambda incumbent: _run(instance, budget, incumbent),
        program="HiGHS",
        failures=(MemoryError, RuntimeError, OSError, pulp.PulpError),
    )


def _run(instance: Instance, budget: Budget, incumbent: Incumbent) -> Ended:
    """Build and solve the model, and return how this ended."""
    params = budget.params.milp
    queues = queues_of(instance, pooled=not graph_of(instance).joint)
    incumbent.offer(in_queue_order(incumbent.schedule))
    windows = _windows(queues, budget, incumbent.cost)
    size = size_of(queues, windows.undecided * (1 if queues.pooled else 2))  # pairs, and memory of void W's
    refuse_if_too_large(size, params.most_megabytes)
    if size.binaries * params.seconds_per_binary > budget.left * params.share:
        return TOO_LARGE
    if refusal := MemoryCap(budget.max_memory).refusal(size.megabytes * 2**20):
        return refusal
    model = MilpModel(queues, windows, incumbent.bound)
    model.set_start(in_queue_order(incumbent.schedule), incumbent.cost)
    if budget.left <= 0:
        return FINISHED
    watch = _Watch(model, incumbent)
    ended = run_highs(model, budget, watch)
    return ended if ended.early else watch.ended


def _windows(queues: Queues, budget: Budget, horizon: int) -> Windows:
    """Return windows for a horizon; where there are joint operations, only what edges alone say.

    The rules of windows place the items of a joint operation by their cut times, and this model does not.
    """
    if not queues.pooled:
        return windows_of_edges(queues, horizon)
    part = budget.part(budget.params.milp.share).within(budget.params.milp.windows_seconds)
    return shaved_windows(queues, horizon, part)


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
