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
from time import perf_counter

from tightpipe.solver.engine.portfolio import in_turn

from ..core.budget import Budget
from ..core.progress import Progress
from .candidate_pool import CandidatePool
from .finder import FINDS, Finder
from .open_candidate import OpenCandidate
from .partitions import Partitions
from .problem import PlanningProblem
from .prover import Prover
from .recomputing_candidates import seeds
from .runtimes import SOLVER
from .rushed_candidates import rushed_candidate


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
        self._solves = SOLVER in problem.space.scheduling
        self._slice = self.params.unlimited_slice
        if budget.limited:
            self._slice = max(self.params.shortest_slice, self.params.first_slice * budget.left)

    def run(self) -> str:
        """Search until the best plan is proven best, time is up or no work is left.

        Return the reason of the stop if a signal stopped the search, and '' otherwise.
        """
        begun = perf_counter()
        finder = Finder(self.problem, self.pool, self.budget, self._slice, solves=self._solves)
        prover = Prover(self.pool, self._slice if self._solves else None)
        self._look_at_each()

        def share() -> float:
            """Return the share of the time for proofs, which is small while they do not raise the bound."""
            at_rest = perf_counter() - self.pool.raised > self.params.lull * (perf_counter() - begun)
            part = self.params.rare if at_rest and not self.budget.endless else 1.0
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
                    self.pool.look_at(seed, self.pool.heuristics, until=self.budget)
