"""The methods ``best``, which improves and proves from a warm start, and ``bound``, which only proves."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import NamedTuple

from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.result import Bound, Progress, Result, ignore
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget
from tightpipe.params.proof import BoundParams
from tightpipe.params.search import BestParams
from tightpipe.params.solve_params import DEFAULTS

from .blocks import BlockSearch
from .bounds.destructive import energetic_bound, prefix_bound, shaving_bound
from .bounds.relaxed import is_searchable
from .cpsat.cpsat_method import exact_search, minimise, targets
from .cpsat.targets import refutation_bound
from .engine.portfolio import Begin, Begins, Member, Portfolio, Sequence, Worker, alone, in_sequence
from .engine.run import Incumbent, Search, bounding, run
from .improve import local_search
from .outcome import TOO_LARGE, End, Ended, Outcome, Worked
from .prefixes import Beams, PrefixProofs
from .queues import pairs_of
from .windows import are_crowded


def solve_best(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    progress: Progress = ignore,
) -> Result:
    """Find the cheapest schedule and the best bound that all solvers together reach.

    Parameters
    ----------
    instance
        The problem. A solver that does not model a rule of the instance is left out: only the improvement
        and CP-SAT know all rules.
    budget
        The limits of the whole solve.
    warm_start
        A valid schedule; None to start from one microbatch after another.
    progress
        Called with each new incumbent or bound.

    Raises
    ------
    InputError
        If the warm start is not a valid schedule of the instance.
    """
    work = partial(_work, instance, budget)
    return run("best", instance, budget, warm_start, progress, work, opening=energetic_bound)


def _work(instance: Instance, budget: Budget, incumbent: Incumbent) -> Ended:
    """Improve the schedule for a short while, then search and prove side by side."""
    params = budget.params.best
    quick = params.quick_pace * pairs_of(instance)
    if quick <= params.quick * min(budget.left, budget.effort):
        ended = alone(budget.shortened(quick), incumbent, local_search(instance, incumbent))
        if ended.early or incumbent.closed:
            return ended
        budget = replace(budget, effort=budget.effort - quick)
    if are_crowded(arrays_of(instance), budget.params.windows):
        return alone(budget, incumbent, searches(instance, incumbent))
    if instance.offload is not None:
        bound = bounding(prefix_bound, incumbent, params.prefixes)
        proof = in_sequence(*([] if budget.endless else bound), exact_search(instance, incumbent))
        return Portfolio(budget, incumbent, searches(instance, incumbent), proof, params.hope).run()
    # The larger the instance, the less CP-SAT proves, and the less time the proofs get. They keep the whole
    # share where memory is scarce and devices are few, because searches over prefixes succeed there. Where
    # memory is scarce and devices are many, nothing raises the bound, whereas schedules gain to the end.
    scarce = _is_scarce(incumbent, params)
    hope = params.hope * min(1, params.provable / pairs_of(instance))
    if not scarce:
        hope = max(hope, budget.params.sides.least)
    elif instance.devices <= params.few:
        hope = params.hope
    return Portfolio(
        budget, incumbent, searches(instance, incumbent), proofs(instance, incumbent), hope
    ).run()


def searches(instance: Instance, incumbent: Incumbent) -> Begin:
    """Return what begins the search for cheaper schedules: by improvement, and first by beams and blocks.

    Where memory is scarce, published schedules idle in every period. Annealing moves one operation of one
    period at a time, and so does not arrive at a better period. Beam searches over prefixes find better
    schedules on few devices. Repeating blocks find them on any number, for as long as they gain.
    """

    def members(worker: Worker) -> Begins:
        params = worker.whole.params.best
        crowded = are_crowded(arrays_of(instance), worker.whole.params.windows)
        if _is_scarce(incumbent, params):
            if instance.devices <= params.few and is_searchable(instance) and not crowded:
                yield partial(Beams, instance, incumbent, params.beams)
            if not instance.fusing_saves:  # annealing finds mixes of fused and split backwards sooner
                yield partial(BlockSearch, instance, incumbent, params.blocks)
        yield local_search(instance, incumbent)

    return lambda worker: Sequence(members(worker))


def proofs(instance: Instance, incumbent: Incumbent) -> Begin:
    """Return what raises the bound by one kind of proof after another, the kinds that may succeed soon first.

    The energetic bound, which runs before all members, proves most of what can be proven where memory is
    plentiful, whatever the size of the instance.

    Searches over prefixes prove most where memory is scarce. Some of these searches take milliseconds and
    others minutes, so there are two rounds of them. The short round comes first. Where no search of it came
    to an end, there is no long round. The long round comes before CP-SAT
    where memory is scarce or the instance is large, and otherwise after CP-SAT has minimised for some
    seconds. CP-SAT closes the gap of small instances in seconds. If an instance is too large for CP-SAT, the
    search for schedules gets its time.
    """

    def members(worker: Worker) -> Begins:
        params, pairs = worker.whole.params.best, pairs_of(instance)
        scarce, large = _is_scarce(incumbent, params), pairs > params.provable
        long_round = partial(PrefixProofs, instance, incumbent, params.prefixes, params.prefix_search)
        short_round = yield _quick_prefixes(instance, incumbent, params)
        answered = short_round.end is not End.UNSUITED
        if answered and (scarce or large):
            yield long_round
        ended = TOO_LARGE
        if not worker.whole.endless or params.shaving_pace * pairs <= worker.left:
            ended = yield partial(minimise, instance, incumbent)
        if answered and not (scarce or large):
            yield long_round
        if not ended.early:
            yield partial(_Targets, instance, incumbent)

    return lambda worker: Sequence(members(worker))


class _Targets:
    """Lets CP-SAT refute targets, and repeats the quick searches over prefixes whenever the gap has halved.

    After the gap has halved, a quick search over prefixes often has only a few ticks left to refute.
    """

    def __init__(self, instance: Instance, incumbent: Incumbent, worker: Worker) -> None:
        self._targets = targets(instance, incumbent, worker)
        self._incumbent, self._gap = incumbent, _gap(incumbent)
        self._prefixes: Member | None = None
        self._again = _quick_prefixes(instance, incumbent, worker.whole.params.best)

    def step(self, worker: Worker) -> Outcome:
        if self._prefixes is None and _gap(self._incumbent) <= self._gap / 2:
            self._prefixes = self._again(worker)
        if self._prefixes is None:
            return self._targets.step(worker)
        outcome = self._prefixes.step(worker)
        if not isinstance(outcome, Ended):
            return outcome
        self._prefixes, self._gap = None, _gap(self._incumbent)
        return Worked()


def _quick_prefixes(instance: Instance, incumbent: Incumbent, params: BestParams) -> Begin:
    return partial(PrefixProofs, instance, incumbent, params.quick_prefixes, params.quick_search)


def _is_scarce(incumbent: Incumbent, params: BestParams) -> bool:
    """Return whether the gap is so large that memory is probably scarce."""
    return _gap(incumbent) > params.scarce * incumbent.bound


def _gap(incumbent: Incumbent) -> int:
    """Return the gap in ticks, in place of a share: the cost of the best schedule less the bound."""
    return incumbent.cost - incumbent.bound


class Asked(NamedTuple):
    """A search for bounds, as `bound` asks it."""

    search: Search
    share: float  # of the time left when it begins, 0 to 1


def bound_searches(params: BoundParams = DEFAULTS.bounds) -> tuple[Asked, ...]:
    """Return the searches in sequence."""
    return (
        Asked(energetic_bound, params.energetic),
        Asked(shaving_bound, params.shaving),
        Asked(prefix_bound, params.prefixes),
        Asked(refutation_bound, params.refutation),
    )


def raise_bounds(start: Schedule, budget: Budget, found: list[Bound], progress: Progress) -> None:
    """Append better and better bounds to those `found`, of which there is one, and report each to `progress`.

    No bound is above the cost of `start`, a valid schedule; else raise a ContradictionError.
    """
    best = max(found, key=_value)
    incumbent = Incumbent(start, best.value, best.proof, perf_counter(), progress, best.name)

    def keep(bound: Bound) -> None:
        if bound.value > max(map(_value, found)):
            found.append(bound)

    members = [
        begin
        for search, share in bound_searches(budget.params.bounds)
        for begin in bounding(search, incumbent, share, cut=search is not prefix_bound, tell=keep)
    ]
    alone(budget, incumbent, in_sequence(*members))


def _value(bound: Bound) -> int:
    return bound.value
