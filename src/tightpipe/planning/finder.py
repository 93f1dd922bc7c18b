"""The member of a plan's search that looks for cheaper plans."""

from __future__ import annotations

from itertools import islice, product
from random import Random
from time import perf_counter

from tightpipe.solver.engine.worker import Worker
from tightpipe.solver.outcome import Idle, Outcome, Worked

from ..core.budget import Budget, TimeUpError
from .candidate import Candidate
from .candidate_pool import CandidatePool
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .neighbours import neighbours
from .open_candidate import OpenCandidate
from .problem import PlanningProblem
from .relaxed_candidates import relaxed_candidate
from .rushed_candidates import Rushed

FINDS = "improve"
"""The method that finds cheaper schedules of candidates."""


class Finder:
    """Looks for cheaper plans: by a solver, among relaxed candidates, and among neighbours.

    Parameters
    ----------
    problem
        The planning problem.
    pool
        The candidates.
    budget
        The limits of the whole search, and its seed.
    first
        The seconds that a solver may work on a candidate the first time; each further time takes twice as
        long.
    solves
        Whether a solver may work on candidates, or heuristics alone.
    """

    def __init__(
        self, problem: PlanningProblem, pool: CandidatePool, budget: Budget, first: float, *, solves: bool
    ) -> None:
        self._problem, self._pool, self._budget, self._slice = problem, pool, budget, first
        self._params, self._random = budget.params.plan, Random(budget.seed)
        bounded = [source for source in pool.sources if not isinstance(source, Rushed)]  # those take too long
        by_bound = sorted((s for s in bounded if s.bound < NEVER), key=lambda source: source.bound)
        open_ones = [(source.configuration, source.bound) for source in by_bound]
        self._relaxed = product(self._params.held, open_ones)
        self._begun, self._relaxing = perf_counter(), 0.0
        self._hope = self._params.hope  # share of its cost that a candidate's first search is to save
        self._solves = solves

    def step(self, worker: Worker) -> Outcome:
        """Do some of each kind of work.

        There is nothing to do if a solver has no candidate to work on, no relaxed candidate was tried, and no
        neighbour is cheaper.
        """
        begun = perf_counter()
        searched = self._improve()
        went_on = self._relax(1 if self._budget.endless or not searched else 0) or searched
        went_on = self._vary(self._params.varying * (perf_counter() - begun)) or went_on
        if self._pool.ended.stopped:
            return self._pool.ended
        return Worked(1.0) if went_on else Idle()

    def _look_at(self, candidate: Candidate, heuristics: list[str]) -> OpenCandidate | None:
        return self._pool.look_at(candidate, heuristics, until=self._budget)

    @property
    def _is_over(self) -> bool:
        return self._pool.ended.stopped or self._pool.closed or self._budget.left <= 0

    def _improve(self) -> bool:
        """Let a solver search for a cheaper schedule of the most promising candidate.

        Return False if no candidate has a schedule, if only heuristics may schedule, or if the search is
        over.
        """
        known = [found for found in self._pool.open if found.schedule is not None]
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
        return found.cost * (1 + self._params.change * found.searches) - hope

    def _search(self, found: OpenCandidate) -> None:
        """Let a solver search for a cheaper schedule of a candidate, for twice as long as the last time.

        The time is wall time, or an equivalent amount of effort if the search has no time limit.
        """
        before = found.cost
        self._pool.solve(found, FINDS, self._budget.shortened(self._slice * 2**found.searches))
        found.searches += 1
        found.gained = 0 if before is None or found.cost is None else before - found.cost

    def _relax(self, least: int) -> bool:
        """Try relaxed candidates for a share of the time; return whether any was tried.

        At least `least` candidates are tried if as many are left, and no more if there is no time limit. The
        schedules that heuristics find do not show how good these candidates are. So a solver then searches
        for a cheaper schedule of each candidate. This first search takes twice as long as that of others.
        """
        begun, looked = perf_counter(), 0
        while looked < least or (not self._budget.endless and self._may_relax(begun)):
            following = next(self._relaxed, None)
            if following is None or self._is_over:
                break
            held, (configuration, bound) = following
            looked += 1
            cap = min(int(self._params.cap * bound) + 1, self._pool.cost)
            candidate = None if self._pool.is_beaten(bound) else self._relaxed_of(configuration, cap, held)
            found = None if candidate is None else self._look_at(candidate, self._pool.heuristics)
            if found is not None and self._solves and not (found.closed or self._is_over):
                found.searches = 1
                self._search(found)
        self._relaxing += perf_counter() - begun
        return looked > 0

    def _relaxed_of(self, configuration: Configuration, cap: int, held: float) -> Candidate | None:
        try:
            return relaxed_candidate(configuration, cap, held, self._budget.part(self._params.relaxed))
        except TimeUpError:
            return None

    def _may_relax(self, begun: float) -> bool:
        now = perf_counter()
        return self._relaxing + now - begun < self._params.relaxed * (now - self._begun)

    def _vary(self, seconds: float) -> bool:
        """Schedule neighbours of the climber, the candidate with the cheapest schedule by heuristics.

        A neighbour with a cheaper schedule becomes the climber, and its own neighbours are tried next. The
        climb ends if no neighbour is cheaper. With a time limit, it also ends after `seconds` or half of the
        time of a first solve, whichever is longer. Return whether the climber has changed.
        """
        until = self._budget if self._budget.endless else self._budget.within(max(self._slice / 2, seconds))
        first = self._pool.climber
        while self._pool.climber is not None and self._climbs(self._pool.climber, until):
            pass
        return self._pool.climber is not first

    def _climbs(self, here: OpenCandidate, until: Budget) -> bool:
        """Schedule neighbours of the climber `here` until one is cheaper; return whether one is.

        The function returns False if time is up, or after `most_neighbours` neighbours.
        """
        found = neighbours(self._problem, here.candidate, self._random, self._params.recomputing)
        for candidate in islice(found, self._params.most_neighbours):
            if until.left <= 0 or self._is_over:
                return False
            self._look_at(candidate, [here.heuristic])
            if self._pool.climber is not here:
                return True
        return False
