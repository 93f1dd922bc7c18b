"""The method ``best``: improvement and proofs side by side, from a warm start."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from functools import partial
from math import comb

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import was_stopped
from tightpipe.core.metrics import cost
from tightpipe.core.params.search import BestParams
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Result
from tightpipe.core.schedule import Schedule

from .beam_turns import beam_turns
from .bounds.searches.fluid import fluid_bound
from .cpsat.cpsat_method import minimise_turns, plain_turns, target_turns
from .improve import improve
from .improve.improve_method import improve_turns
from .incumbent import Incumbent
from .modelled import is_modelled
from .periods import block_turns
from .prefix_turns import prefix_turns
from .run_search import TOO_LARGE, run_search
from .two_sides import Side, SideBySide, Turns


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
        and the plain model of CP-SAT know all rules.
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
    search = partial(_search, instance, budget)
    return run_search("best", instance, budget, warm_start, None, progress, search, energetic=True)


def _search(instance: Instance, budget: Budget, incumbent: Incumbent) -> str:
    """Improve the schedule for a short while, then search and prove side by side.

    Return why this work ended early. The result is the empty string if nothing ended early.
    """
    params = budget.params.best
    quick = params.quick_pace * _pairs(instance)
    if quick <= params.quick * min(budget.left, budget.effort):
        part = budget.shortened(quick)
        budget = replace(budget, effort=budget.effort - quick)
        result = improve(instance, part, incumbent.schedule, incumbent.bound, incumbent.follow)
        incumbent.offer(result.schedule)
        if result.reason or incumbent.closed:
            return result.reason
    search = partial(search_turns, instance, incumbent)
    if not is_modelled(instance):
        proof = partial(plain_turns, instance, incumbent)
        return SideBySide(budget, incumbent, search, proof, params.hope).run()
    proof = partial(proof_turns, instance, incumbent)
    # The larger the instance, the less CP-SAT proves, and the less time the proofs get. They keep the whole
    # share where memory is scarce and devices are few, because searches over prefixes succeed there.
    small = _is_scarce(incumbent, params) and instance.devices <= params.few
    hope = params.hope if small else params.hope * min(1, params.provable / _pairs(instance))
    return SideBySide(budget, incumbent, search, proof, hope).run()


def search_turns(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    """Search for cheaper schedules by improvement, and first by beams and blocks where memory is scarce.

    Where memory is scarce, published schedules idle in every period. Annealing moves one operation of one
    period at a time, and so does not arrive at a better period. Beam searches over prefixes find better
    schedules on up to about eight devices, and repeating blocks on more.

    Parameters
    ----------
    instance
        A problem that the improvement models.
    incumbent
        The schedule to improve.
    side
        The limits of the turns.
    """
    params = side.whole.params.best
    if is_modelled(instance) and _is_scarce(incumbent, params):
        yield from beam_turns(instance, incumbent, params.beams, side)
        reason = yield from block_turns(instance, incumbent, params.blocks, side)
        if was_stopped(reason):
            return reason
    return (yield from improve_turns(instance, incumbent, side))


def proof_turns(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    """Raise the bound by one kind of proof after another, and begin with the kinds that may succeed quickly.

    The energetic bound, which `run_search` computes before any turn, proves most of what can be proven where
    memory is plentiful, whatever the size of the instance.

    Searches over prefixes prove most where memory is scarce. Some of these searches take milliseconds and
    others minutes, so there are two rounds of them. The short round comes first. The long round comes before
    the fluid bound where memory is scarce, before CP-SAT on other large instances, and otherwise after CP-SAT
    has minimised for some seconds.

    Where B's take longer than F's, the fluid bound often proves more than searches over prefixes. CP-SAT
    closes the gap of small instances in seconds. If an instance is too large for CP-SAT, the turns of CP-SAT
    end at once, and the search for schedules gets more time.

    Parameters
    ----------
    instance
        A problem that all solvers model.
    incumbent
        The schedule and the bound to improve.
    side
        The limits of the turns.
    """
    params = side.whole.params.best
    scarce, large = _is_scarce(incumbent, params), _pairs(instance) > params.provable
    second_round = prefix_turns(instance, incumbent, params.prefixes, params.prefix_search, side)
    yield from _quick_prefixes(instance, incumbent, side)
    if scarce:
        yield from second_round
    yield from _fluid(instance, incumbent, side)
    if large:
        yield from second_round
    small = not side.whole.endless or params.shaving_pace * _pairs(instance) <= side.rest
    reason = (yield from minimise_turns(instance, incumbent, side)) if small else TOO_LARGE
    if reason not in ("", TOO_LARGE):
        return reason
    yield from second_round  # a round that has already run yields nothing more
    return reason or (yield from _targets(instance, incumbent, side))


def _targets(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    """Let CP-SAT refute targets, and repeat the quick searches over prefixes each time the gap has halved.

    After the gap has halved, a quick search over prefixes often has only a few ticks left to refute.
    """
    gap = _gap(incumbent)
    with closing(target_turns(instance, incumbent, side)) as turns:
        while True:
            try:
                yield next(turns)
            except StopIteration as end:
                return str(end.value)
            if _gap(incumbent) <= gap / 2:
                yield from _quick_prefixes(instance, incumbent, side)
                gap = _gap(incumbent)


def _quick_prefixes(instance: Instance, incumbent: Incumbent, side: Side) -> Generator[float, None, None]:
    params = side.whole.params.best
    yield from prefix_turns(instance, incumbent, params.quick_prefixes, params.quick_search, side)


def _fluid(instance: Instance, incumbent: Incumbent, side: Side) -> Generator[float, None, None]:
    """Raise the bound by the fluid bound, within a part of the time.

    The fluid bound is skipped without a deadline, because its linear programs need one.
    """
    if side.whole.endless:
        return
    params = side.whole.params.best
    seconds = min(params.fluid * side.whole.left, params.fluid_pace * _pairs(instance))
    bound = fluid_bound(instance, cost(incumbent.schedule), side.budget.within(seconds), incumbent.bound)
    incumbent.prove(bound.value, bound.proof)
    yield seconds


def _is_scarce(incumbent: Incumbent, params: BestParams) -> bool:
    """Return whether the gap is so large that memory is probably scarce."""
    return _gap(incumbent) > params.scarce * incumbent.bound


def _gap(incumbent: Incumbent) -> int:
    """Return the gap in ticks, in place of a share: the cost of the best schedule less the bound."""
    return cost(incumbent.schedule) - incumbent.bound


def _pairs(instance: Instance) -> int:
    """Return the number of pairs of operations that share a device."""
    operations = 3 * instance.stages * instance.microbatches
    return instance.devices * comb(operations // instance.devices, 2)
