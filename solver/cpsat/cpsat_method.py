"""The method ``cpsat``: improve a schedule with CP-SAT, or prove that it is optimal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Literal

from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.result import Progress, Proof, Result, ignore
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget

from ..bounds.destructive import energetic_bound
from ..engine.portfolio import Begin, Begins, Sequence, Worker, alone
from ..engine.run import Incumbent, in_queue_order, run
from ..outcome import FINISHED, TOO_LARGE, Ended, Outcome, Worked
from ..programs import MemoryCap
from ..queues import queues_of
from ..windows import shaved_windows, windows_of
from .lattice import LatticeModel
from .plain import PlainModel
from .race import SECONDS_OF_EFFORT, SearchModel, lattice_refusal, plain_bytes, search
from .targets import Targets

Formulation = Literal["lattice", "plain"]


def solve_cpsat(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    progress: Progress = ignore,
    *,
    formulation: Formulation = "lattice",
    fifo: bool = True,
) -> Result:
    """Search with CP-SAT, within the limits, for a cheapest schedule and a proof that it is cheapest.

    Parameters
    ----------
    instance
        The problem.
    budget
        The limits for all of the work; Ctrl-C and the memory cap end it early.
    warm_start
        A valid schedule, which is the first incumbent. None to start from the schedule that runs one
        microbatch after another.
    progress
        Called with each new incumbent or bound.
    formulation
        The model: `lattice` proves the optimum of far more instances, and `plain` does not rest on the
        argument that microbatches of one class are alike, except for what `fifo` requires. Instances with
        offload take the plain model, whatever is given.
    fifo
        Whether the plain model requires that microbatches of one class run in sequence, as they do in some
        optimal schedule (`tightpipe.model.graph`). With offload such schedules are searched first, and then
        all others, too.

    Raises
    ------
    InputError
        If the warm start is not a valid schedule of the instance.
    """
    lattice = formulation == "lattice"

    def work(incumbent: Incumbent) -> Ended:
        if lattice or instance.offload is not None:
            return alone(budget, incumbent, exact_search(instance, incumbent))
        return alone(budget, incumbent, partial(_minimise_plain, instance, incumbent, inf, fifo=fifo))

    opening = energetic_bound if lattice else None
    return run("cpsat", instance, budget, warm_start, progress, work, opening=opening)


def exact_search(instance: Instance, incumbent: Incumbent) -> Begin:
    """Return what begins to minimise the cost for a while, and then to decide targets."""

    def members() -> Begins:
        ended = yield partial(minimise, instance, incumbent)
        if not ended.early:
            yield partial(targets, instance, incumbent)

    if instance.offload is not None:
        return lambda worker: Sequence(_with_copies(instance, incumbent, worker))
    return lambda _: Sequence(members())


def _with_copies(instance: Instance, incumbent: Incumbent, worker: Worker) -> Begins:
    """Yield what begins to minimise the cost with the plain model, as only that one knows copies.

    First come schedules that run first in, first out, for a while. That proves nothing, and finds schedules
    sooner. Without a deadline each search has twice the effort of the one before it.
    """
    effort = _first_effort(worker)
    ended = yield partial(_minimise_plain, instance, incumbent, effort, fifo=True)
    while not ended.early and worker.left > 0:
        if not worker.whole.endless:
            yield partial(_minimise_plain, instance, incumbent, inf)
            return
        effort = min(2 * effort, worker.left / SECONDS_OF_EFFORT)
        ended = yield partial(_minimise_plain, instance, incumbent, effort)


def minimise(instance: Instance, incumbent: Incumbent, worker: Worker) -> Minimise:
    """Return the member that minimises the cost with the lattice model for a while."""
    return Minimise(instance, incumbent, _lattice, _first_effort(worker))


def _minimise_plain(
    instance: Instance, incumbent: Incumbent, effort: float, _: Worker, *, fifo: bool = False
) -> Minimise:
    """Return the member that minimises with the plain model; first in, first out, copies prove nothing."""
    proves = not fifo or instance.offload is None
    return Minimise(instance, incumbent, _plain(fifo), effort, proves=proves)


def _first_effort(worker: Worker) -> float:
    """Return the limit of the first search of a model in CP-SAT's deterministic time."""
    params = worker.whole.params.cpsat
    return min(params.effort_to_minimise, params.minimise_per_second * worker.left)


def targets(instance: Instance, incumbent: Incumbent, worker: Worker) -> Targets:
    """Return the member that decides targets until the gap is closed."""
    params = worker.whole.params
    return Targets(instance, incumbent, params.targets, params.cpsat.effort_per_target)


Build = Callable[[Instance, Budget, Incumbent], SearchModel | Ended]
"""Builds a model within limits, for schedules up to the incumbent's cost; or says why there is no search.

The search is `FINISHED` if the incumbent is proven optimal.
"""


class Minimise:
    """Minimises the cost with one model after another, one a step, each with a shorter horizon.

    A shorter horizon decides more orders before the search begins. So a new model is worth its time once a
    schedule has been found that closes a good part of the gap (the parameter `gap_left`). Each search has a
    limit in CP-SAT's deterministic time. Bounds hold if the model `proves`, with a cheapest schedule in it.
    """

    def __init__(
        self, instance: Instance, incumbent: Incumbent, build: Build, effort: float, *, proves: bool = True
    ) -> None:
        self._instance, self._incumbent, self._build, self._effort = instance, incumbent, build, effort
        self._proves = proves
        self._over = False

    def step(self, worker: Worker) -> Outcome:
        """Build a model and search it. After a model that leaves too much of the gap, there is no other."""
        known, params = self._incumbent, worker.whole.params.cpsat
        if self._over or known.closed or worker.budget.left <= 0:
            return FINISHED
        model = self._build(self._instance, worker.budget, known)
        if isinstance(model, Ended):
            return model
        enough = known.bound + int(params.gap_left * (known.cost - known.bound))
        found = search(
            *(model, worker.budget, self._report),
            enough=enough,
            effort=self._effort,
            moot=lambda: known.cost <= enough,
        )
        known.offer(found.schedule)
        if self._proves:
            known.prove(found.bound, Proof.CP_SAT)
        if found.ended.early:
            return found.ended
        self._over = known.cost > enough
        effort = self._effort if self._effort < inf else params.effort_to_minimise
        return Worked(effort * SECONDS_OF_EFFORT)

    def _report(self, found: int | None, bound: int | None) -> None:
        self._incumbent.report_cost(found)
        if self._proves:
            self._incumbent.prove(bound, Proof.CP_SAT)


def _lattice(instance: Instance, budget: Budget, incumbent: Incumbent) -> SearchModel | Ended:
    queues, params = queues_of(instance), budget.params.cpsat
    hint = in_queue_order(incumbent.schedule)
    incumbent.offer(hint)
    better = incumbent.cost - 1
    part = budget.part(params.windows)
    windows = windows_of(queues, better, part)
    if windows.feasible:
        # Where twice as many orders are open as may be, shaving takes seconds and decides one in a hundred.
        if lattice_refusal(windows, 2 * budget.left * params.build, MemoryCap(None), params):
            return TOO_LARGE
        windows = shaved_windows(queues, better, part, wider=windows)
    if not windows.feasible:
        incumbent.prove(better + 1, Proof.SHAVING)
        return FINISHED
    if refusal := lattice_refusal(windows, budget.left * params.build, MemoryCap(budget.max_memory), params):
        return refusal
    model = LatticeModel(queues, windows, incumbent.bound, much_idle=params.much_idle)
    model.add_hint(hint, cost(hint))
    return model


def _size(instance: Instance) -> int:
    """Return the number of operations and copies, and of an F and a backward that may run together."""
    stages, n = instance.stages, instance.units
    held = [len(instance.placement.stages_on(d)) * n for d in range(instance.devices)]
    paired = sum(h * h for h in held) if instance.has_pairs else 0
    copies = 2 * n * sum(map(instance.offloads, range(stages)))
    return 3 * stages * n + copies + paired


def _plain(fifo: bool) -> Build:
    def build(instance: Instance, budget: Budget, incumbent: Incumbent) -> SearchModel | Ended:
        operations, params = _size(instance), budget.params.cpsat
        if operations * params.seconds_per_operation > budget.left * params.build:
            return TOO_LARGE
        if refusal := MemoryCap(budget.max_memory).refusal(plain_bytes(instance)):
            return refusal
        hint = incumbent.schedule
        if not hint.order.has_copies:  # with copies, to run first in, first out may cost more
            hint = in_queue_order(hint)
            incumbent.offer(hint)
        model = PlainModel(instance, incumbent.cost, incumbent.bound, fifo=fifo)
        model.add_hint(hint, cost(hint))
        return model

    return build
