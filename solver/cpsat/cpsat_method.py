"""The method ``cpsat``: prove or improve a schedule with CP-SAT."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Literal

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Proof, Result
from tightpipe.core.schedule import Schedule

from ..memory import MemoryCap
from ..progress import Incumbent
from ..queues import queues_of
from ..run import TOO_LARGE, run_search
from ..start import in_queue_order
from ..windows import shaved_windows
from .lattice.model import LatticeModel
from .plain.model import PlainModel
from .search import SearchModel, search
from .size import lattice_refusal, plain_bytes
from .targets import ask_targets

Formulation = Literal["lattice", "plain"]
_SECONDS_PER_OPERATION = 2.5e-3  # building one operation of the plain model
_GAP_LEFT = 0.5  # a new model pays when no more than this share of the gap is left
_SHARE_OF_WINDOWS = 0.2  # of the time left
_SHARE = 0.5  # of the time left that building may take
# deterministic time, before targets are asked for; not seconds, so that one worker is reproducible
_EFFORT_TO_MINIMISE = 0.4
_MINIMISE_PER_SECOND = 0.024  # the same per second of a short time limit: most of it
_EFFORT_PER_TARGET = 0.3  # at first


def fifo_is_valid(instance: Instance) -> bool:
    """Whether some optimal schedule runs the microbatches of each route in sequence at every stage.

    It is, as costs and memory depend on the stage only, so microbatches of one route are identical
    (the argument stands in `queues`). Sequences of different routes are never tied to each other.
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
    minimise: bool = True,
) -> Result:
    """Find the cheapest schedule that CP-SAT can find and prove within the limits.

    Parameters
    ----------
    instance
        The problem.
    budget
        For all of the work; Ctrl-C and the memory cap end it early.
    warm_start
        A valid schedule; it is the first incumbent. Without one, microbatch after microbatch is.
    lower_bound
        A proven bound of the cost, used if it is better than those of `bounds`.
    progress
        Called with each new incumbent or bound.
    formulation
        `lattice` closes far more; `plain` does not rest on identical microbatches.
    fifo
        Whether the plain formulation fixes the sequence of microbatches; None where it is valid.
    minimise
        Whether the lattice formulation searches below the incumbent before it asks for targets.

    Raises
    ------
    InputError
        If the warm start is not a valid schedule of the instance.
    """
    effort = min(_EFFORT_TO_MINIMISE, _MINIMISE_PER_SECOND * budget.left)

    def search_plain(incumbent: Incumbent) -> str:
        in_sequence = fifo_is_valid(instance) if fifo is None else fifo
        return _minimise(instance, budget, incumbent, _plain(in_sequence), inf)

    def search_lattice(incumbent: Incumbent) -> str:
        reason = _minimise(instance, budget, incumbent, _lattice, effort) if minimise else ""
        return reason or ask_targets(instance, budget, incumbent, _EFFORT_PER_TARGET)

    return run_search(
        *("cpsat", instance, budget, warm_start, lower_bound, progress),
        search_plain if formulation == "plain" else search_lattice,
        energetic=formulation == "lattice",
        program="CP-SAT",
        failures=(MemoryError, RuntimeError),
    )


Build = Callable[[Instance, Budget, Incumbent], SearchModel | str]
"""Returns the model, or why there is none: empty where the incumbent is now known to be optimal."""


def _minimise(instance: Instance, budget: Budget, incumbent: Incumbent, build: Build, effort: float) -> str:
    """Search, again and again from a shorter horizon; return why it ended early, if not for its effort.

    The horizon decides orders before the search begins, so it is shorter than the incumbent's cost, and a
    schedule that takes away a good part of the gap is worth a new model.
    """

    def report(found: int | None, bound: int | None) -> None:
        incumbent.hear(found)
        incumbent.prove(bound, Proof.CP_SAT)

    while not incumbent.closed and budget.left > 0:
        model = build(instance, budget, incumbent)
        if isinstance(model, str):
            return model
        horizon = cost(incumbent.schedule)
        enough = incumbent.bound + int(_GAP_LEFT * (horizon - incumbent.bound))
        found = search(model, budget, report, enough=enough, effort=effort)
        incumbent.offer(found.schedule)
        incumbent.prove(found.bound, Proof.CP_SAT)
        if found.reason or cost(incumbent.schedule) > enough:
            return found.reason
    return ""


def _lattice(instance: Instance, budget: Budget, incumbent: Incumbent) -> SearchModel | str:
    queues = queues_of(instance)
    hint = in_queue_order(incumbent.schedule)
    incumbent.offer(hint)
    better = cost(incumbent.schedule) - 1
    windows = shaved_windows(queues, better, budget.part(_SHARE_OF_WINDOWS))
    if not windows.feasible:
        incumbent.prove(better + 1, Proof.SHAVING)
        return ""
    if refusal := lattice_refusal(windows, budget.left * _SHARE, MemoryCap(budget.max_memory)):
        return refusal
    model = LatticeModel(queues, windows, incumbent.bound)
    model.add_hint(hint, cost(hint))
    return model


def _plain(fifo: bool) -> Build:
    def build(instance: Instance, budget: Budget, incumbent: Incumbent) -> SearchModel | str:
        operations = 3 * instance.stages * instance.microbatches
        if operations * _SECONDS_PER_OPERATION > budget.left * _SHARE:
            return TOO_LARGE
        if refusal := MemoryCap(budget.max_memory).refusal(plain_bytes(instance)):
            return refusal
        hint = in_queue_order(incumbent.schedule)
        incumbent.offer(hint)
        model = PlainModel(instance, cost(incumbent.schedule), incumbent.bound, fifo=fifo)
        model.add_hint(hint, cost(hint))
        return model

    return build
