"""The search for the best plan: it raises the bound of all plans and looks for cheaper plans, in turns.

Every configuration yields its candidates in ascending order of a bound. Every candidate that was looked at
has a bound of its own, which solvers raise. The least of all these bounds is a bound of all plans. To raise
the bound of all plans, the search works on the configuration or candidate that has the least bound.

A candidate with the least bound often has a device that is close to a limit all the time, so that its
schedules are dear. So cheap plans are searched for among other candidates. Some of them are far from all
limits, and some are neighbours of the candidate with the cheapest schedule by heuristics. Solvers work on the
candidates of which the cheapest schedules can be expected.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from random import Random
from time import perf_counter

from ..core.budget import Budget, TimeUpError
from ..core.progress import Progress
from .candidate import Candidate
from .candidate_pool import CandidatePool
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .neighbours import neighbours
from .open_candidate import OpenCandidate
from .partitions import Partitions
from .problem import SOLVER, PlanningProblem
from .recomputing_candidates import seeds
from .relaxed_candidates import relaxed_candidate
from .rushed_candidates import Rushed, rushed_candidate

_PROVES, _FINDS = "best", "improve"  # the methods that raise bounds and that find cheaper schedules


class Search:
    """A search for the best plan of a problem, and its state.

    Parameters
    ----------
    problem
        The planning problem.
    sources
        For each configuration, what yields its candidates in ascending order of their bounds.
    budget
        The limits of the whole search, and its seed.
    progress
        Function that is called with a log entry for each new cost or bound.
    """

    def __init__(
        self, problem: PlanningProblem, sources: list[Partitions], budget: Budget, progress: Progress
    ) -> None:
        self.problem, self.budget, self.params = problem, budget, budget.params.plan
        self.pool = CandidatePool(problem, sources, progress)
        self._random = Random(budget.seed)
        bounded = [source for source in sources if not isinstance(source, Rushed)]  # those take too long
        by_bound = sorted((s for s in bounded if s.bound < NEVER), key=lambda source: source.bound)
        open_ones = [(source.configuration, source.bound) for source in by_bound]
        self._relaxed = product(self.params.held, open_ones)
        self._proving = self._finding = self._relaxing = 0.0  # seconds, or turns without a time limit
        self._hope = self.params.hope  # share of its cost that a candidate's first search is to save
        methods = problem.space.methods
        self._solves = methods is None or SOLVER in methods
        self._slice = self.params.unlimited_slice
        if budget.limited:
            self._slice = max(self.params.shortest_slice, self.params.first_slice * budget.left)

    def run(self) -> str:
        """Search until the best plan is proven best, time is up or no work is left.

        Return the reason of the stop if a signal stopped the search, and '' otherwise.
        """
        begun = perf_counter()
        self._look_at_each()
        while not self._is_over:
            resting = perf_counter() - self.pool.raised > self.params.lull * (perf_counter() - begun)
            share = self.params.rare if resting and not self.budget.endless else 1.0
            if self._proving <= share * self._finding:
                went_on = self._prove() or self._find()
            else:
                went_on = self._find() or self._prove()
            if not went_on:
                break
        return self.pool.reason

    def rush(self) -> None:
        """Schedule candidates of each configuration that are found at once, until one has a schedule.

        This is for a search that has ended without any plan, as it does if its time was short.
        """
        until = self.budget.first_part(1.0, self.params.rush)
        for source in sorted(self.pool.sources, key=lambda source: source.bound):
            for found in self._found_at_once(source, until):
                if found is not None and found.schedule is None and self._solves:
                    self.pool.solve(found, _FINDS, self.budget.within(0.0))
                if self.pool.best is not None:
                    return

    def _found_at_once(self, source: Partitions, until: Budget) -> Iterator[OpenCandidate | None]:
        yield self.pool.take(source, until)
        candidate = rushed_candidate(source.configuration, until)
        if candidate is not None:
            yield self.pool.look_at(candidate, self.pool.heuristics, until=until)

    def _schedule(self, candidate: Candidate, heuristics: list[str]) -> OpenCandidate | None:
        return self.pool.look_at(candidate, heuristics, until=self.budget)

    @property
    def _is_over(self) -> bool:
        return self.pool.reason != "" or self.pool.closed or self.budget.left <= 0

    def _seconds(self, begun: float) -> float:
        """Return the seconds since `begun`; without a time limit return 1, so that turns are counted."""
        return 1.0 if self.budget.endless else perf_counter() - begun

    def _look_at_each(self) -> None:
        """Schedule the first candidate of each configuration, and then variants that recompute more layers.

        Configurations come in ascending order of their bounds. `recomputing_candidates.seeds` yields the
        variants of a candidate; those of the candidate with the cheapest schedule come first.
        """
        first = []
        for source in sorted(self.pool.sources, key=lambda source: source.bound):
            if self.budget.left > 0:
                first.append(self.pool.take(source, self.budget))
        for found in sorted(filter(None, first), key=lambda found: found.heuristic_cost):
            for seed in seeds(self.problem, found.candidate, self.params.recomputed):
                if self.budget.left > 0:
                    self._schedule(seed, self.pool.heuristics)

    def _prove(self) -> bool:
        """Work on the configuration or the candidate with the least bound, so that this bound rises.

        Of a configuration the next candidate is taken, and on a candidate a solver works. Return False if
        there is neither a configuration nor a candidate to work on.
        """
        begun, pool = perf_counter(), self.pool
        source = min(pool.sources, key=lambda source: source.bound, default=None)
        most = min(pool.open, key=lambda found: (found.bound, found.proofs), default=None)
        precedes = self._solves and most is not None and source is not None and most.bound <= source.bound
        if source is not None and not pool.is_beaten(source.bound) and not precedes:
            pool.take(source, self.budget)
        elif most is not None and self._solves:
            pool.solve(most, _PROVES, self.budget.shortened(self._slice * 2**most.proofs))
            most.proofs += 1
        else:
            return False
        self._proving += self._seconds(begun)
        return True

    def _find(self) -> bool:
        """Look for a cheaper plan: by a solver, among relaxed candidates, and among neighbours.

        Return False if a solver has no candidate to work on, no relaxed candidate was tried, and no neighbour
        is cheaper.
        """
        begun = perf_counter()
        searched = self._improve()
        went_on = self._relax(1 if self.budget.endless or not searched else 0) or searched
        went_on = self._vary(self.params.varying * (perf_counter() - begun)) or went_on
        self._finding += self._seconds(begun)
        return went_on

    def _improve(self) -> bool:
        """Let a solver search for a cheaper schedule of the most promising candidate.

        Return False if no candidate has a schedule, if only heuristics may schedule, or if the search is
        over.
        """
        known = [found for found in self.pool.open if found.schedule is not None]
        if not (known and self._solves) or self._is_over:
            return False
        found = min(known, key=self._hoped)
        self._search(found)
        if found.searches == 1 and found.cost is not None:
            self._hope = (self._hope + found.gained / found.cost) / 2
        return True

    def _hoped(self, found: OpenCandidate) -> float:
        """Return the cost, in ticks, that one more search of a candidate is supposed to find.

        The next search is supposed to save as many ticks as the last one of this candidate did. For a first
        search, the saving is estimated from what first searches have saved so far. The cost counts as a
        little higher for each search that the candidate has had.
        """
        assert found.cost is not None
        hope = found.gained if found.searches else self._hope * found.cost
        return found.cost * (1 + self.params.change * found.searches) - hope

    def _search(self, found: OpenCandidate) -> None:
        """Let a solver search for a cheaper schedule of a candidate, for twice as long as the last time.

        The time is wall time, or an equivalent amount of effort if the search has no time limit.
        """
        before = found.cost
        self.pool.solve(found, _FINDS, self.budget.shortened(self._slice * 2**found.searches))
        found.searches += 1
        found.gained = 0 if before is None or found.cost is None else before - found.cost

    def _relax(self, least: int) -> bool:
        """Try relaxed candidates for a share of the time; return whether any was tried.

        At least `least` candidates are tried if as many are left, and no more if there is no time limit. The
        schedules that heuristics find do not show how good these candidates are. So a solver then searches
        for a cheaper schedule of each candidate. This first search takes twice as long as that of others.
        """
        begun, looked = perf_counter(), 0
        while looked < least or (not self.budget.endless and self._may_relax(begun)):
            following = next(self._relaxed, None)
            if following is None or self._is_over:
                break
            held, (configuration, bound) = following
            looked += 1
            cap = min(int(self.params.cap * bound) + 1, self.pool.cheapest)
            candidate = None if self.pool.is_beaten(bound) else self._relaxed_of(configuration, cap, held)
            found = None if candidate is None else self._schedule(candidate, self.pool.heuristics)
            if found is not None and self._solves and not (found.closed or self._is_over):
                found.searches = 1
                self._search(found)
        self._relaxing += perf_counter() - begun
        return looked > 0

    def _relaxed_of(self, configuration: Configuration, cap: int, held: float) -> Candidate | None:
        try:
            return relaxed_candidate(configuration, cap, held, self.budget.part(self.params.relaxed))
        except TimeUpError:
            return None

    def _may_relax(self, begun: float) -> bool:
        spent = perf_counter() - begun
        return self._relaxing + spent < self.params.relaxed * (self._proving + self._finding + spent)

    def _vary(self, seconds: float) -> bool:
        """Schedule neighbours of the climber, the candidate with the cheapest schedule by heuristics.

        A neighbour with a cheaper schedule becomes the climber, and its own neighbours are tried next. The
        climb ends if no neighbour is cheaper. With a time limit, it also ends after `seconds` or half of the
        time of a first solve, whichever is longer. Return whether the climber has changed.
        """
        until = self.budget if self.budget.endless else self.budget.within(max(self._slice / 2, seconds))
        first = self.pool.climber
        while self.pool.climber is not None and self._climbs(self.pool.climber, until):
            pass
        return self.pool.climber is not first

    def _climbs(self, here: OpenCandidate, until: Budget) -> bool:
        """Schedule neighbours of the climber `here` until one is cheaper; return whether one is.

        The function returns False if time is up, or after `most_neighbours` neighbours.
        """
        found = neighbours(self.problem, here.candidate, self._random, self.params.recomputing)
        for candidate in islice(found, self.params.most_neighbours):
            if until.left <= 0 or self._is_over:
                return False
            self._schedule(candidate, [here.heuristic])
            if self.pool.climber is not here:
                return True
        return False
