"""The search for the best plan: one member raises the bound of all plans, another looks for cheaper plans.

Every configuration yields its candidates in ascending order of a bound. Every candidate that was looked at
has a bound of its own, which solvers raise. The least of all these bounds is a bound of all plans. To raise
it, the search works on the configuration or candidate that has the least bound.

A candidate with the least bound often has a device that is close to a limit all the time, so that its
schedules are dear. So cheap plans are searched for among others, which are far from all limits, or neighbours
of the best one so far. Solvers work on the candidates of which the cheapest schedules can be expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations_with_replacement, cycle, islice, pairwise, product, zip_longest
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING

from tightpipe.solver.engine.portfolio import Worker, in_turn
from tightpipe.solver.outcome import Idle, Outcome, Worked

from ..base.errors import InputError
from ..base.interruption import raise_again
from ..model.result import Progress, Proof
from ..model.simulate import retime
from ..params.budget import Budget, TimeUpError
from ..params.solve_params import DEFAULTS
from .candidate import Candidate
from .candidate_pool import CandidatePool, OpenCandidate, Scope, scope_of
from .candidates_by_list import is_allowed
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .fixed_orders import order_for_paths
from .partitions import Partitions, Rushed, even_candidates, relaxed_candidate, rushed_candidate, seeds
from .problem import SOLVER, PlanningProblem
from .result import Plan

if TYPE_CHECKING:
    from .path_bound import PathBound

FINDS = "improve"  # the method that finds cheaper schedules of candidates
_PROVES = "best"  # the method that raises the bounds of candidates
_ALIKE = 8  # candidates with one bound that all heuristics schedule; of more, the best heuristic so far
_SCARCE = ("list", "adaptive-1f1b")  # heuristics that schedule even cuts where memory is scarce
_PATHS = 3.0  # time for bounds from paths, as a multiple of that for the candidates with the least bound


class Search:
    """A search for the best plan of a problem, and its state; `CandidatePool` explains its arguments."""

    def __init__(
        self, problem: PlanningProblem, sources: list[Partitions], budget: Budget, progress: Progress
    ) -> None:
        self.problem, self.budget, self.params = problem, budget, budget.params.plan
        self.pool = CandidatePool(problem, sources, progress)
        self._solves = SOLVER in problem.methods_for()
        self._slice = self.params.unlimited_slice
        if budget.limited:
            self._slice = max(self.params.shortest_slice, self.params.first_slice * budget.left)

    def begin_with(self, other: Plan) -> None:
        """Start from a plan of a problem that allows less, if it has a schedule."""
        if other.candidate is not None and other.schedule is not None:
            found = self.pool.look_at(other.candidate, [], until=self.budget)
            if found is not None:
                self.pool.keep(found, retime(found.instance, other.schedule.order), other.method)
                self.pool.look_at(other.candidate, [], until=self.budget)  # now with its cost
        raise_again(other.reason)

    def run(self) -> str:
        """Search until the best plan is proven best, time is up or no work is left.

        Return the reason of the stop if a signal stopped the search, and '' otherwise.
        """
        begun = perf_counter()
        finder = Finder(self.problem, self.pool, self.budget, self._slice, solves=self._solves)
        paths = PathBounds(self.pool, self.budget)
        prover = Prover(self.pool, self._slice if self._solves else None, paths)
        self._look_at_each()

        def share() -> float:
            """Return the share of the time for proofs, which is small while they do not raise the bound."""
            at_rest = perf_counter() - self.pool.raised > self.params.lull * (perf_counter() - begun)
            rare = at_rest and not (self.budget.endless or paths.may_rise)
            part = self.params.rare if rare else 1.0
            return part / (1.0 + part)

        return in_turn(self.budget, self.pool, lambda _: finder, lambda _: prover, share).text

    def rush(self) -> None:
        """Schedule candidates of each configuration that are found at once, until one has a schedule.

        This is for a search that has ended without any plan, as it does if its time was short.
        """
        until = self.budget.first_part(1.0, self.params.rush)
        for source in sorted(self.pool.sources, key=lambda source: source.bound):
            for found in self._found_at_once(source, until):
                if found is not None and found.schedule is None and self._solves:
                    self.pool.solve(found, FINDS, self.budget.within(0.0))
                if self.pool.best is not None:
                    return

    def _found_at_once(self, source: Partitions, until: Budget) -> Iterator[OpenCandidate | None]:
        yield self.pool.take(source, until)
        candidate = rushed_candidate(source.configuration, until)
        if candidate is not None:
            yield self.pool.look_at(candidate, self.pool.heuristics, until=until)

    def _look_at_each(self) -> None:
        """Schedule the first candidate of each configuration, and its variants by `seeds` if time allows.

        Where memory is scarce, those with the least bounds have hardly a schedule. So others come before.
        """
        first = []
        if self.problem.cluster.memory is not None:
            self._look_at_even()
        for source in sorted(self.pool.sources, key=lambda source: source.bound):
            if self.budget.left > 0:
                known = self.pool.best is not None
                until = self.budget.part(self.params.seeding) if known else self.budget
                first.append(self.pool.take(source, until))
        seeding = self.budget.first_part(self.params.seeding, self.params.bounding_least)
        for found in sorted(filter(None, first), key=lambda found: found.heuristic_cost):
            for seed in seeds(self.problem, found.candidate, self.params.recomputed):
                if seeding.left > 0:
                    self.pool.look_at(seed, self.pool.heuristics, until=self.budget)

    def _look_at_even(self) -> None:
        """Schedule even cuts, one of each configuration in turn, while all plans are far from the bound.

        Of each cut, those that recompute most come first. Two heuristics are enough for a start, and soon
        done; the others may follow.
        """
        heuristics = [name for name in self.pool.heuristics if name in _SCARCE] or self.pool.heuristics
        until = self.budget.part(self.params.evening)
        found = [reversed(list(even_candidates(one.configuration, until))) for one in self.pool.sources]
        for candidate in filter(None, chain.from_iterable(zip_longest(*found))):
            if until.left <= 0 or self.pool.cost <= self.params.far * self.pool.bound:
                return
            some = self.pool.look_at(candidate, heuristics, until=until)
            if some is not None:
                some.hurried = True


class Finder:
    """Looks for cheaper plans: by a solver, among relaxed candidates, and among neighbours.

    A solver, if it `solves` at all, works on a candidate for `first` seconds the first time, and twice as
    long each further time. Once no relaxed candidate begins, it works for a share of the time left if that is
    longer: one long search finds what many short ones do not. These searches go by turns to the cheapest
    candidate that still gains and to the most hopeful one: large gains from a dear start say little.
    """

    def __init__(
        self, problem: PlanningProblem, pool: CandidatePool, budget: Budget, first: float, *, solves: bool
    ) -> None:
        self._problem, self._pool, self._budget, self._slice = problem, pool, budget, first
        self._params, self._random = budget.params.plan, Random(budget.seed)
        bounded = [source for source in pool.sources if not isinstance(source, Rushed)]  # those take too long
        by_bound = sorted((s for s in bounded if s.bound < NEVER), key=lambda source: source.bound)
        # without a limit of memory a candidate with the least bound has none to be close to
        relaxable = by_bound if problem.cluster.memory is not None else []
        open_ones = [(source.configuration, source.bound) for source in relaxable]
        self._relaxed = product(self._params.held, (self._params.tight, self._params.cap), open_ones)
        self._begins = True  # whether relaxed candidates have their first searches
        self._quota = self._params.relaxed * budget.left  # seconds for these
        self._reached = dict[Scope, int]()  # the least cost of these in ticks
        self._relaxing = 0.0
        self._hope = self._params.hope  # share of its cost that a candidate's first search is to save
        self._solves = solves
        self._long_keys = cycle((_gaining, self._hoped))  # of which candidates long searches take the least

    def step(self, worker: Worker) -> Outcome:
        """Do some of each kind of work, if there is any."""
        begun = perf_counter()
        searched = self._improve()
        solved = perf_counter() - begun
        went_on = self._relax(1 if self._budget.endless or not searched else 0) or searched
        went_on = self._vary(self._params.varying * solved) or went_on
        if self._pool.ended.stopped:
            return self._pool.ended
        return Worked(1.0) if went_on else Idle()

    def _look_at(self, candidate: Candidate, heuristics: list[str]) -> OpenCandidate | None:
        return self._pool.look_at(candidate, heuristics, until=self._budget)

    @property
    def _is_over(self) -> bool:
        return self._pool.ended.stopped or self._pool.closed or self._budget.left <= 0

    def _improve(self) -> bool:
        """Let a solver search for a cheaper schedule of the most promising candidate, if there is one."""
        known = [found for found in self._pool.open if found.schedule is not None and not found.solved]
        if not (known and self._solves) or self._is_over:
            return False
        found = min(known, key=next(self._long_keys) if self._is_long else self._hoped)
        self._search(found)
        if found.searches == 1 and found.cost is not None:
            self._hope = (self._hope + found.gained / found.cost) / 2
        return True

    @property
    def _is_long(self) -> bool:
        """Whether the next search gets a share of the time left."""
        return not (self._begins or self._budget.endless)

    def _hoped(self, found: OpenCandidate) -> float:
        """Return the cost, in ticks, that one more search of a candidate is supposed to find.

        It saves as much as its last search did, or as first searches have saved so far. The cost counts as a
        little higher for each search that the candidate has had.
        """
        assert found.cost is not None
        hope = found.gained if found.searches else self._hope * found.cost
        return found.cost * (1 + self._params.change * found.searches) - hope

    def _search(self, found: OpenCandidate) -> None:
        """Let a solver search for a cheaper schedule of a candidate, at least twice as long as the last time.

        The time is wall time, or an equivalent amount of effort if the search has no time limit.
        """
        before, seconds = found.cost, self._slice * 2**found.searches
        if self._is_long:
            seconds = max(seconds, self._params.long * self._budget.left)
        self._pool.solve(found, FINDS, self._budget.shortened(seconds))
        found.searches += 1
        found.gained = 0 if before is None or found.cost is None else before - found.cost

    def _relax(self, least: int) -> bool:
        """Try relaxed candidates for a share of the time; return whether any was tried.

        At least `least` candidates are tried if as many are left, and no more if there is no time limit.
        Heuristics do not show how good they are, so each is searched at once, twice as long as others.
        """
        begun, looked = perf_counter(), 0
        while looked < least or (not self._budget.endless and self._may_relax(begun)):
            following = next(self._relaxed, None)
            if following is None or self._is_over:
                break
            held, slack, (configuration, bound) = following
            looked += 1
            cost, cap = (min(int(x * bound) + 1, self._pool.cost) for x in (self._params.cap, slack))
            some = configuration, cap, held, cost
            scope = scope_of(configuration)
            gives_up = self._pool.is_beaten(bound) or self._is_behind(scope)
            candidate = None if gives_up else self._relaxed_of(*some)
            found = None if candidate is None else self._look_at(candidate, self._pool.heuristics)
            if found is not None and self._solves and not (found.closed or self._is_over):
                found.searches = 1
                self._search(found)
            if found is not None and found.cost is not None:
                self._reached[scope] = min(self._reached.get(scope, NEVER), found.cost)
        self._relaxing += perf_counter() - begun
        self._begins = looked > 0 and self._relaxing < self._quota
        return looked > 0

    def _is_behind(self, scope: Scope) -> bool:
        """Return whether relaxed candidates of a scope cost so much that further ones are left out."""
        return self._reached.get(scope, 0) > (1 + self._params.behind) * self._pool.cost

    def _relaxed_of(self, configuration: Configuration, cap: int, held: float, cost: int) -> Candidate | None:
        until = self._budget.part(self._params.relaxed)
        try:
            return relaxed_candidate(configuration, cap, held, until, cost=cost)
        except (TimeUpError, InputError):  # or a longer stage than others has too many ways to be recomputed
            return None

    def _may_relax(self, begun: float) -> bool:
        return self._relaxing + perf_counter() - begun < self._quota

    def _vary(self, seconds: float) -> bool:
        """Schedule neighbours of the climber, the candidate with the cheapest schedule by heuristics.

        The climb ends if none is cheaper, and with a time limit after `seconds` or half of the time of
        a first solve, whichever is longer. Return whether the climber has changed.
        """
        until = self._budget if self._budget.endless else self._budget.within(max(self._slice / 2, seconds))
        first = self._pool.climber
        while self._pool.climber is not None and self._climbs(self._pool.climber, until):
            pass
        return self._pool.climber is not first

    def _climbs(self, here: OpenCandidate, until: Budget) -> bool:
        """Schedule neighbours of the climber until one is cheaper or time is up; return whether one is."""
        found = neighbours(self._problem, here.candidate, self._random, self._params.recomputing)
        for candidate in islice(found, self._params.most_neighbours):
            if until.left <= 0 or self._is_over:
                return False
            self._look_at(candidate, [here.heuristic])
            if self._pool.climber is not here:
                return True
        return False


def _gaining(found: OpenCandidate) -> int:
    """Return the cost of a candidate in ticks; above all others if its last search has not lowered it."""
    assert found.cost is not None
    return found.cost + (NEVER if found.searches and not found.gained else 0)


class PathBounds:
    """Bounds of all cuts at once, for each configuration with one fixed order."""

    def __init__(self, pool: CandidatePool, budget: Budget) -> None:
        self._pool, self._budget = pool, budget
        orders = [order_for_paths(pool.problem, one.configuration.placement) for one in pool.sources]
        pairs = zip(pool.sources, orders, strict=True)
        self._waiting = [(source, order) for source, order in pairs if order and source.bound < NEVER]
        self._open: list[PathBound] = []

    @property
    def may_rise(self) -> bool:
        """Whether any of these bounds may rise."""
        return bool(self._waiting) or any(each.may_rise for each in self._open)

    def step(self) -> bool:
        """Work on the configuration with the least bound; return whether there is any that may rise."""
        self._begin()
        pool = self._pool
        useful = [each for each in self._open if each.may_rise and not pool.is_beaten(each.bound)]
        if pool.best is None or not useful:
            return False
        least = min(useful, key=lambda each: each.bound)
        candidate = least.step(pool.cost, self._budget)
        pool.prove(least.configuration, least.bound, Proof.CP_SAT)
        if candidate is not None:
            pool.look_at(candidate, pool.heuristics, until=self._budget)
        return True

    def _begin(self) -> None:
        if self._waiting:
            from .path_bound import PathBound  # which loads CP-SAT

            self._open = [
                PathBound(source.configuration, order, source.bound) for source, order in self._waiting
            ]
            self._waiting = []


class Prover:
    """Works on the configuration or the candidate with the least bound, so that this bound rises.

    Of a configuration the next candidate is taken, and on a candidate a solver works, for `first` seconds the
    first time and twice as long each further time; None if only heuristics may schedule. Where orders are
    fixed, `paths` bound all cuts at once, for three times as long as candidates are looked at.
    """

    def __init__(self, pool: CandidatePool, first: float | None, paths: PathBounds) -> None:
        self._pool, self._first, self._paths = pool, first, paths
        self._on_paths = self._on_candidates = 0.0  # seconds
        self._last, self._alike = 0, 0  # the last bound, and how many candidates in a row had it

    def step(self, worker: Worker) -> Outcome:
        """Take a candidate, let a solver work on one, or prove that no cut is cheap; there may be nothing."""
        begun, paths_are_due = perf_counter(), self._on_paths < _PATHS * self._on_candidates
        if paths_are_due and self._paths.step():
            self._on_paths += _seconds_since(begun, worker)
            return Worked(1.0)
        if self._look_at_candidates(worker):
            self._on_candidates += _seconds_since(begun, worker)
        elif paths_are_due or not self._paths.step():
            return Idle()
        return self._pool.ended if self._pool.ended.stopped else Worked(1.0)

    def _look_at_candidates(self, worker: Worker) -> bool:
        pool = self._pool
        source = min(pool.sources, key=pool.bound_of, default=None)
        unsolved = (found for found in pool.open if not found.solved)
        most = min(unsolved, key=lambda found: (found.bound, found.proofs), default=None)
        solves = self._first is not None
        precedes = solves and most is not None and source is not None and most.bound <= source.bound
        if source is not None and not pool.is_beaten(pool.bound_of(source)) and not precedes:
            bound = pool.bound_of(source)
            self._alike, self._last = (self._alike + 1 if bound == self._last else 0), bound
            pool.take(source, worker.whole, all_heuristics=self._alike < _ALIKE)
        elif most is not None and self._first is not None:
            pool.solve(most, _PROVES, worker.whole.shortened(self._first * 2**most.proofs))
            most.proofs += 1
        else:
            return False
        return True


def _seconds_since(begun: float, worker: Worker) -> float:
    """Return the seconds of a step; without a time limit 1, so that the steps do not depend on a clock."""
    return 1.0 if worker.whole.endless else perf_counter() - begun


def neighbours(
    problem: PlanningProblem,
    candidate: Candidate,
    random: Random,
    recomputing: float = DEFAULTS.plan.recomputing,
) -> Iterator[Candidate]:
    """Yield random neighbours of a candidate, endlessly; yield nothing if it has no neighbour.

    A neighbour recomputes one layer more, one less or one in another kind, or has some consecutive cuts
    shifted by one layer, so that one stage gives a layer to another. The same layers as before are then
    recomputed. Where both are possible, a share `recomputing` of the neighbours recomputes another layer.
    Where slices may have any lengths, every other neighbour is the same but for these.
    """
    again = {layer: kind for stage in candidate.recomputed for layer, kind in stage}
    layers = problem.model.layers
    effects = [layer.effects(problem.space.recompute) for layer in layers]
    able = [(k, kind) for k, kinds in enumerate(effects) for kind in (None, *kinds) if kinds]
    empty = problem.space.empty
    # whether a stage can give a layer to another stage
    movable = len(candidate.stages) > 1 and (empty or len(candidate.stages) < len(layers)) and len(layers) > 2
    slides = problem.slides and len(candidate.slices) > 1
    while able or movable or slides:
        if slides and (not (able or movable) or random.random() < 1 / 2):
            yield replace(candidate, slices=_slid(candidate.slices, random))
            continue
        cuts, recomputed = candidate.cuts, again
        if able and (not movable or random.random() < recomputing):  # else a layer goes to another stage
            layer, kind = random.choice([each for each in able if again.get(each[0]) != each[1]])
            recomputed = {k: other for k, other in again.items() if k != layer}
            recomputed |= {} if kind is None else {layer: kind}
        else:
            cuts = _moved(candidate.cuts, random, empty=empty)
        if recomputed is not again or cuts != candidate.cuts:
            yield _candidate(candidate, cuts, recomputed)


def _slid(slices: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """Return the slices with some tokens of one moved to another, by about 1/64 to 1/4 of a mean slice."""
    giver, taker = random.sample(range(len(slices)), 2)
    bits = (sum(slices) // len(slices)).bit_length()
    tokens = min(2 ** random.randrange(max(0, bits - 7), max(1, bits - 2)), slices[giver] - 1)
    return tuple(x + tokens * ((j == taker) - (j == giver)) for j, x in enumerate(slices))


def layers_moved(candidate: Candidate, *, empty: bool) -> Iterator[Candidate]:
    """Yield each candidate in which one stage has a layer less than before, and another one a layer more."""
    again = {layer: kind for stage in candidate.recomputed for layer, kind in stage}
    inner = range(1, len(candidate.cuts) - 1)
    for (first, last), step in product(combinations_with_replacement(inner, 2), (-1, 1)):
        cuts = _shifted(candidate.cuts, first, last, step, empty=empty)
        if cuts:
            yield _candidate(candidate, cuts, again)


def _moved(cuts: tuple[int, ...], random: Random, *, empty: bool) -> tuple[int, ...]:
    """Return the cuts with some consecutive ones shifted by a layer; unchanged if that is not allowed."""
    inner = range(1, len(cuts) - 1)
    first, last = sorted(random.choices(inner, k=2))
    return _shifted(cuts, first, last, random.choice((-1, 1)), empty=empty) or cuts


def _shifted(cuts: tuple[int, ...], first: int, last: int, step: int, *, empty: bool) -> tuple[int, ...]:
    """Return the cuts with those from `first` to `last` shifted by `step`; () if a stage would be empty.

    With `empty`, only the first and the last stage must not be so.
    """
    moved = tuple(cut + step * (first <= k <= last) for k, cut in enumerate(cuts))
    return moved if is_allowed(moved, empty=empty) else ()


def _candidate(candidate: Candidate, cuts: tuple[int, ...], recomputed: dict[int, str]) -> Candidate:
    parts = (tuple((k, recomputed[k]) for k in range(a, b) if k in recomputed) for a, b in pairwise(cuts))
    return replace(candidate, cuts=cuts, recomputed=tuple(parts))
