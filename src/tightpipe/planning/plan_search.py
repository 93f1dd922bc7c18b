"""Best-first search over all candidates: it examines the least bounds first, with growing effort.

Every configuration yields its candidates in ascending order of a bound, and every candidate that was looked
at has a bound of its own, which solvers raise. The least of these bounds is a bound of all plans. To raise
it, the search works on the configuration or candidate to which it belongs. In between, to find a better plan,
the search works on a candidate with a cheap schedule, and tries neighbours of the cheapest one by heuristics.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from random import Random
from time import perf_counter

from tightpipe.heuristics import HEURISTICS
from tightpipe.solver.bounds.formulas import best_bound

from ..core.budget import Budget
from ..core.contradiction import refuse_contradiction
from ..core.errors import InputError, NoScheduleError
from ..core.interruption import was_stopped
from ..core.metrics import cost
from ..core.placement import Placement
from ..core.progress import Progress
from ..core.result import LogEntry, Proof
from ..core.schedule import Schedule
from ..solving.methods import find_method
from ..solving.starts import schedule_of
from .candidate import Candidate, instance_of
from .device_bound_kernel import NEVER
from .neighbours import neighbours
from .open_candidate import OpenCandidate
from .partitions import Partitions
from .problem import PlanningProblem
from .recomputing_candidates import seeds

_SEARCH = "best"  # the method that works on a candidate after the heuristics
_FIRST_SLICE = 0.01  # share of the time limit for a candidate's first solve; each solve doubles the time
_SHORTEST_SLICE = 0.2  # least seconds for the first solve
_UNLIMITED_SLICE = 5.0  # seconds for the first solve if there is no time limit
_VARYING = 0.5  # time for trying neighbours, as a multiple of the time that solvers have just taken
_CHANGE = 0.004  # `_improve` counts a candidate as this share of its cost dearer for each solve it has had
_MOST_NEIGHBOURS = 200  # neighbours of one candidate that are drawn in one go; some may be drawn repeatedly


class Search:
    """The state of one search.

    Parameters
    ----------
    problem
        The planning problem.
    sources
        The candidates of each configuration.
    budget
        The limits of the whole search.
    progress
        Called with each new cost or bound.
    """

    def __init__(
        self, problem: PlanningProblem, sources: list[Partitions], budget: Budget, progress: Progress
    ) -> None:
        self.problem, self.sources, self.budget, self._progress = problem, list(sources), budget, progress
        self.ended: list[Partitions] = []  # sources without a further candidate; their bounds still count
        self.open: list[OpenCandidate] = []
        self._seen: set[Candidate] = set()
        self._random = Random(budget.seed)
        self.best: OpenCandidate | None = None
        self._climber: OpenCandidate | None = None  # has the cheapest schedule by heuristics
        self.considered = 0
        self.log: list[LogEntry] = []
        self.proofs = {Proof.FORMULA}
        self.bound, self.reason, self._begun = 0, "", perf_counter()
        self._first_bounds: dict[Placement, int] = {}
        methods = problem.space.methods
        self._heuristics = [name for name in HEURISTICS if methods is None or name in methods]
        self._searches = methods is None or _SEARCH in methods
        left = budget.left
        self._slice = max(_SHORTEST_SLICE, _FIRST_SLICE * left) if budget.limited else _UNLIMITED_SLICE

    @property
    def proof(self) -> Proof:
        """What the bound rests on: of all kinds of proofs that were used, the one that needs most trust."""
        return max(self.proofs, key=list(Proof).index)

    def run(self) -> str:
        """Search until the best plan is proven best, time is up or no work is left.

        Return a text that says so if a signal stopped the search, and '' otherwise.
        """
        self._look_at_each()
        went_on = True
        while went_on and not (self.reason or self.closed or self.budget.left <= 0):
            begun = perf_counter()
            went_on = self._prove()
            went_on = self._improve() or went_on
            went_on = self._vary(_VARYING * (perf_counter() - begun)) or went_on
        return self.reason

    @property
    def closed(self) -> bool:
        """Whether no plan can be cheaper than the best one, or no candidate is left and there is no plan."""
        self._note()
        return self.bound >= (NEVER if self.best is None else cost(self._schedule))

    @property
    def _schedule(self) -> Schedule:
        assert self.best is not None
        assert self.best.schedule is not None
        return self.best.schedule

    def _look_at_each(self) -> None:
        """Schedule one candidate of each configuration, and then the `seeds` of each of these candidates.

        Configurations come in ascending order of their bounds, and seeds in that of their candidate's cost.
        """
        first = [self._look_at(source) for source in sorted(self.sources, key=lambda source: source.bound)]
        for found in sorted(filter(None, first), key=lambda found: found.heuristic_cost):
            for seed in seeds(self.problem, found.candidate):
                if self.budget.left > 0:
                    self._try(seed, self._heuristics)

    def _look_at(self, source: Partitions) -> OpenCandidate | None:
        """Take the next candidate of a configuration and schedule it; None if none or no time is left."""
        bound = source.bound
        candidate = source.take() if self.budget.left > 0 else None
        if candidate is None:
            self.sources.remove(source)
            self.ended.append(source)
            return None
        self._first_bounds.setdefault(candidate.placement, bound)
        return self._try(candidate, self._heuristics, bound)

    def _opened(self, candidate: Candidate, bound: int) -> OpenCandidate | None:
        """Return a candidate with its bound, or None if it was seen before or turns out not to fit."""
        if candidate in self._seen:
            return None
        self._seen.add(candidate)
        try:
            instance = instance_of(self.problem, candidate)
        except InputError:  # it does not fit after all: bounds of partitions use rounded numbers
            return None
        if instance.infeasibility() is not None:
            return None
        self.considered += 1
        formula = best_bound(instance)
        return OpenCandidate(candidate, instance, max(bound, formula.value), formula.proof)

    def _is_beaten(self, bound: int) -> bool:
        """Return whether a candidate with this bound, in ticks, cannot be cheaper than the best plan."""
        return self.best is not None and bound >= cost(self._schedule)

    def _offer(self, found: OpenCandidate) -> None:
        """Compare a candidate with the cheapest ones so far, and let it replace those that are dearer.

        The climber is replaced if the candidate has a cheaper schedule by heuristics, and the best plan if it
        has a cheaper schedule by any method. In the latter case, open candidates that can no longer become
        the best plan are dropped.
        """
        if self._climber is None or found.heuristic_cost < self._climber.heuristic_cost:
            self._climber = found
        if found.cost is not None and (self.best is None or found.cost < cost(self._schedule)):
            self.best = found
            self.open = [other for other in self.open if not self._is_beaten(other.bound)]

    def _prove(self) -> bool:
        """Work on the configuration or candidate with the least bound; return False if no work is left."""
        source = min(self.sources, key=lambda source: source.bound, default=None)
        most = min(self.open, key=lambda found: (found.bound, found.rounds), default=None)
        if (
            source is not None
            and not self._is_beaten(source.bound)
            and not self._precedes(most, source.bound)
        ):
            self._look_at(source)
            return True
        if most is None or not self._searches:
            return False
        self._work_on(most)
        return True

    def _precedes(self, found: OpenCandidate | None, bound: int) -> bool:
        """Return whether a solver should work on `found` before a new candidate with this bound is taken."""
        return self._searches and found is not None and found.bound <= bound

    def _improve(self) -> bool:
        """Let a solver work on one of the most promising candidates; return False if no solver ran."""
        known = [found for found in self.open if found.schedule is not None]
        if not (known and self._searches) or self.reason or self.budget.left <= 0:
            return False
        self._work_on(min(known, key=lambda found: found.heuristic_cost * (1 + _CHANGE * found.rounds)))
        return True

    def _vary(self, seconds: float) -> bool:
        """Schedule neighbours of the climber, the candidate with the cheapest schedule by heuristics.

        A neighbour with a cheaper schedule becomes the climber, and its own neighbours are tried next. This
        ends if no neighbour is cheaper or, if there is a time limit, after `seconds` or the time of a first
        solve, whichever is longer. Return whether the climber has changed.
        """
        until = self.budget if self.budget.endless else self.budget.within(max(self._slice, seconds))
        first = self._climber
        while self._climber is not None and not (until.left <= 0 or self.reason or self.closed):
            here = self._climber
            for candidate in islice(neighbours(self.problem, here.candidate, self._random), _MOST_NEIGHBOURS):
                if until.left <= 0:
                    break
                self._try(candidate, [here.heuristic])
                if self._climber is not here:
                    break
            else:
                break
        return self._climber is not first

    def _try(self, candidate: Candidate, heuristics: list[str], bound: int = 0) -> OpenCandidate | None:
        """Schedule a candidate by heuristics, unless it was seen, does not fit or cannot be cheapest."""
        found = self._opened(candidate, max(bound, self._first_bounds[candidate.placement]))
        if found is None or self._is_beaten(found.bound):
            return None
        for heuristic in heuristics:
            if candidate.placement.name in HEURISTICS[heuristic].placements:
                self._schedule_by(found, heuristic)
        self._offer(found)
        if not self._is_beaten(found.bound):
            self.open.append(found)
        self._note()
        return found

    def _schedule_by(self, found: OpenCandidate, heuristic: str) -> None:
        """Schedule a candidate by a heuristic, and keep the schedule if it is the cheapest so far."""
        with suppress(NoScheduleError):
            schedule = schedule_of(found.instance, HEURISTICS[heuristic])
            if cost(schedule) < found.heuristic_cost:
                found.heuristic, found.heuristic_cost = heuristic, cost(schedule)
                found.schedule, found.method = schedule, heuristic

    def _work_on(self, found: OpenCandidate) -> None:
        """Let the method `best` work on a candidate, for twice as long as the last time.

        This time is wall time, or an equivalent amount of effort if the search has no time limit.
        """
        seconds = self._slice * 2**found.rounds
        found.rounds += 1
        run = find_method(_SEARCH).load()
        result = run(
            found.instance, self.budget.shortened(seconds), found.schedule or "best", lambda entry: None
        )
        if result.bound is not None and result.bound > found.bound:
            found.bound, found.proof = result.bound, result.proof or found.proof
            self.proofs.add(found.proof)
        if result.cost is not None and result.cost < (found.cost or NEVER):
            found.schedule, found.method = result.schedule, _SEARCH
            self._offer(found)
        self.open = [other for other in self.open if not self._is_beaten(other.bound)]
        self.reason = result.reason if was_stopped(result.reason) else ""
        self._note()

    def _note(self) -> None:
        """Update the bound of all plans, and log cost and bound if one of them has changed."""
        cheapest = None if self.best is None else cost(self._schedule)
        bounds = [source.bound for source in (*self.sources, *self.ended)] + [
            found.bound for found in self.open
        ]
        self.bound = min([*bounds, NEVER if cheapest is None else cheapest])
        if cheapest is not None:
            refuse_contradiction(self._schedule, self.bound, self.proof)
        entry = LogEntry(perf_counter() - self._begun, cheapest, self.bound, self.proof)
        if not self.log or (entry.cost, entry.bound) != (self.log[-1].cost, self.log[-1].bound):
            self.log.append(entry)
            self._progress(entry)
