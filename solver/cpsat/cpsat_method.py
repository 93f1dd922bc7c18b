"""The method ``cpsat``: improve a schedule with CP-SAT, or prove that it is optimal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Literal

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Proof, Result
from tightpipe.core.schedule import Schedule

from ..incumbent import Incumbent
from ..memory_cap import MemoryCap
from ..modelled import is_modelled
from ..queues import queues_of
from ..run_search import TOO_LARGE, run_search
from ..start import in_queue_order
from ..two_sides import Side, Turns, alone
from ..windows import shaved_windows
from .lattice.model import LatticeModel
from .plain.model import PlainModel
from .race import SECONDS_OF_EFFORT, SearchModel, search
from .size import lattice_refusal, plain_bytes
from .targets import ask_targets

Formulation = Literal["lattice", "plain"]


def fifo_is_valid(instance: Instance) -> bool:
    """Return whether an optimal schedule surely exists that keeps the microbatches of each route in sequence.

    In such a schedule, the microbatches of a route run in sequence for every kind and stage. There is such a
    schedule if all microbatches of a route visit the same devices. These microbatches are then identical,
    because costs and memory depend on the stage only. So they can be renamed, for each kind and stage, in the
    sequence in which they run, and no time changes (see the module `queues`). Microbatches of different
    routes are not identical, and their sequence stays open.
    """
    return all(
        instance.device(s, m) == instance.placement.routes[instance.route(m)][s]
        for m in range(instance.microbatches)
        for s in (0, instance.stages - 1)
    )


def solve_cpsat(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    lower_bound: int | None = None,
    progress: Progress = ignore,
    *,
    formulation: Formulation = "lattice",
    fifo: bool | None = None,
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
    lower_bound
        A proven bound of the cost in ticks, used if it is better than those of `bounds.formulas`.
    progress
        Called with each new incumbent or bound.
    formulation
        The model: `lattice` proves the optimum of far more instances, and `plain` does not rest on the
        argument that microbatches are identical, except for what `fifo` requires. Only `plain` knows the
        rules of `modelled`; an instance that has one is solved with it in any case.
    fifo
        Whether the plain model requires microbatches of one route to run in sequence. None to require it if
        `fifo_is_valid`, so that an optimal schedule remains possible.

    Raises
    ------
    InputError
        If the warm start is not a valid schedule of the instance.
    """
    in_sequence = fifo_is_valid(instance) if fifo is None else fifo
    lattice = formulation == "lattice" and is_modelled(instance)

    def search(incumbent: Incumbent) -> str:
        if lattice:
            return alone(budget, incumbent, partial(cpsat_turns, instance, incumbent))
        return alone(budget, incumbent, partial(_minimise, instance, incumbent, _plain(in_sequence), inf))

    return run_search(
        *("cpsat", instance, budget, warm_start, lower_bound, progress, search),
        energetic=lattice,
    )


def cpsat_turns(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    """Minimise the cost with the lattice model for a while, then decide targets until the gap is closed.

    Parameters
    ----------
    instance
        The problem.
    incumbent
        The schedule and the bound to improve.
    side
        The limits of each turn.
    """
    reason = yield from minimise_turns(instance, incumbent, side)
    return reason or (yield from target_turns(instance, incumbent, side))


def minimise_turns(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    """Minimise the cost with the lattice model for a while; the parameters are those of `cpsat_turns`."""
    params = side.whole.params.cpsat
    effort = min(params.effort_to_minimise, params.minimise_per_second * side.rest)
    return _minimise(instance, incumbent, _lattice, effort, side)


def target_turns(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    """Decide targets until the gap is closed; the parameters are those of `cpsat_turns`."""
    return ask_targets(instance, incumbent, side.whole.params.cpsat.effort_per_target, side)


def plain_turns(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    """Minimise the cost with the plain model, each time for twice as long, until the gap is closed.

    The parameters are those of `cpsat_turns`.
    """
    params, build = side.whole.params.cpsat, _plain(fifo_is_valid(instance))
    effort = min(params.effort_to_minimise, params.minimise_per_second * side.rest)
    while not incumbent.closed and side.rest > 0:
        reason = yield from _minimise(instance, incumbent, build, effort, side)
        if reason:
            return reason
        yield effort * SECONDS_OF_EFFORT
        effort *= 2
    return ""


Build = Callable[[Instance, Budget, Incumbent], SearchModel | str]
"""A function that builds a model of the problem, within limits, for schedules up to the incumbent's cost.

The function returns the model, or the reason why none was built. The reason is empty if the incumbent is
proven optimal.
"""


def _minimise(instance: Instance, incumbent: Incumbent, build: Build, effort: float, side: Side) -> Turns:
    """Minimise the cost with one model after another, each with a shorter horizon.

    A shorter horizon decides more orders before the search begins. So a new model is worth its time once a
    schedule has been found that closes a good part of the gap (the parameter `gap_left`).

    Parameters
    ----------
    instance, incumbent
        The problem, and the schedule and the bound to improve.
    build
        Builds a model from the incumbent.
    effort
        The limit of each search in CP-SAT's deterministic time.
    side
        The limits of each model.

    Returns
    -------
    Turns
        One turn for each model. There is no yield after a model that leaves too much of the gap.
    """

    def report(found: int | None, bound: int | None) -> None:
        incumbent.hear(found)
        incumbent.prove(bound, Proof.CP_SAT)

    params = side.whole.params.cpsat
    while not incumbent.closed and side.budget.left > 0:
        model = build(instance, side.budget, incumbent)
        if isinstance(model, str):
            return model
        horizon = cost(incumbent.schedule)
        enough = incumbent.bound + int(params.gap_left * (horizon - incumbent.bound))
        found = search(
            *(model, side.budget, report),
            enough=enough,
            effort=effort,
            moot=lambda: cost(incumbent.schedule) <= enough,  # noqa: B023  # it is called before the next turn
        )
        incumbent.offer(found.schedule)
        incumbent.prove(found.bound, Proof.CP_SAT)
        if found.reason or cost(incumbent.schedule) > enough:
            return found.reason
        yield min(effort, params.effort_to_minimise) * SECONDS_OF_EFFORT
    return ""


def _lattice(instance: Instance, budget: Budget, incumbent: Incumbent) -> SearchModel | str:
    queues, params = queues_of(instance), budget.params.cpsat
    hint = in_queue_order(incumbent.schedule)
    incumbent.offer(hint)
    better = cost(incumbent.schedule) - 1
    windows = shaved_windows(queues, better, budget.part(params.windows))
    if not windows.feasible:
        incumbent.prove(better + 1, Proof.SHAVING)
        return ""
    if refusal := lattice_refusal(windows, budget.left * params.build, MemoryCap(budget.max_memory), params):
        return refusal
    model = LatticeModel(queues, windows, incumbent.bound, much_idle=params.much_idle)
    model.add_hint(hint, cost(hint))
    return model


def _size(instance: Instance) -> int:
    """Return the number of operations, and of an F and a backward that may run together."""
    stages, n = instance.stages, instance.microbatches
    held = [len(instance.placement.stages_on(d)) * n for d in range(instance.devices)]
    paired = sum(h * h for d, h in enumerate(held) if instance.overlapped(d) is not None)
    return 3 * stages * n + paired


def _plain(fifo: bool) -> Build:
    def build(instance: Instance, budget: Budget, incumbent: Incumbent) -> SearchModel | str:
        operations, params = _size(instance), budget.params.cpsat
        if operations * params.seconds_per_operation > budget.left * params.build:
            return TOO_LARGE
        if refusal := MemoryCap(budget.max_memory).refusal(plain_bytes(instance)):
            return refusal
        hint = in_queue_order(incumbent.schedule)
        incumbent.offer(hint)
        model = PlainModel(instance, cost(incumbent.schedule), incumbent.bound, fifo=fifo)
        model.add_hint(hint, cost(hint))
        return model

    return build
