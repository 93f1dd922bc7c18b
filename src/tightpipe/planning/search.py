"""Best-first search over all candidates: what may be cheapest is looked at first, ever more closely.

Every configuration yields its candidates in ascending order of a bound, and every candidate that was looked at has
a bound of its own, which solvers raise. The least of these bounds is a bound of all plans. Whoever has it is
what the search works on to prove; it takes turns with the candidate that has the cheapest schedule, on
which the search works to find a better one.
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
from ..core.progress import Progress
from ..core.result import LogEntry, Proof
from ..core.schedule import Schedule
from ..solving.methods import find_method
from ..solving.starts import schedule_of, warm_starts
from .candidate import Candidate, instance_of
from .neighbours import neighbours
from .open_candidate import OpenCandidate
from .partition_kernel import NEVER
from .partitions import Partitions
from .problem import PlanningProblem

_FIRST_SLICE = 0.01  # of the time limit; each further round of a candidate gets twice as long
_SHORTEST_SLICE = 0.2  # seconds
_UNLIMITED_SLICE = 5.0  # seconds, where there is no time limit
_MOST_NEIGHBOURS = 200  # of one plan in a turn; where there are few of them, they repeat


class Search:
    """The state of one search.

    Parameters
    ----------
    problem
        What is asked.
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
        self.ended: list[Partitions] = []  # they have no further candidate, but their bound holds
        self.open: list[OpenCandidate] = []
        self._seen: set[Candidate] = set()
        self._random = Random(budget.seed)
        self.best: OpenCandidate | None = None
        self.considered = 0
        self.log: list[LogEntry] = []
        self.proofs = {Proof.FORMULA}
        self.bound, self._begun = 0, perf_counter()
        left = budget.left
        self._slice = max(_SHORTEST_SLICE, _FIRST_SLICE * left) if budget.limited else _UNLIMITED_SLICE

    @property
    def proof(self) -> Proof:
        """What the bound rests on: of all kinds of proofs that were used, the one that needs most trust."""
        return max(self.proofs, key=list(Proof).index)

    def run(self) -> str:
        """Search until the best plan is proven best or time is up; return why a signal ended it, or ''."""
        reason = self._look_at_each()
        while not (reason or self.closed or self.budget.left <= 0) and (self.open or self.sources):
            reason = self._prove() or self._improve()
            self._vary()
        return reason

    @property
    def closed(self) -> bool:
        """Whether no plan can be cheaper than the best one, or none is left that has a schedule."""
        self._note()
        return self.bound >= (NEVER if self.best is None else cost(self._schedule))

    @property
    def _schedule(self) -> Schedule:
        assert self.best is not None
        assert self.best.schedule is not None
        return self.best.schedule

    def _look_at_each(self) -> str:
        """Look at one candidate of each configuration, those with the least bounds first."""
        for source in sorted(self.sources, key=lambda source: source.bound):
            if self.budget.left <= 0:
                break
            self._look_at(source)
            self._note()
        return ""

    def _look_at(self, source: Partitions) -> None:
        """Take the next candidate of a configuration, and schedule it by the heuristics."""
        bound = source.bound
        candidate = source.take()
        if candidate is None:
            self.sources.remove(source)
            self.ended.append(source)
            return
        found = self._opened(candidate, bound)
        if found is None:
            return
        starts = warm_starts(found.instance)
        if starts:
            found.method, found.schedule = starts[0]
            found.start = found.method
            self._offer(found)
        self._keep(found)

    def _opened(self, candidate: Candidate, bound: int) -> OpenCandidate | None:
        """Return a candidate with its bound, or None if it was seen before or turns out not to fit."""
        if candidate in self._seen:
            return None
        self._seen.add(candidate)
        try:
            instance = instance_of(self.problem, candidate)
        except InputError:  # bounds of many partitions are computed with rounded numbers
            return None
        if instance.infeasibility() is not None:
            return None
        self.considered += 1
        formula = best_bound(instance)
        return OpenCandidate(candidate, instance, max(bound, formula.value), formula.proof)

    def _keep(self, found: OpenCandidate) -> None:
        if not self._is_beaten(found):
            self.open.append(found)

    def _is_beaten(self, found: OpenCandidate) -> bool:
        """Whether no schedule of a candidate can be cheaper than the best plan."""
        return self.best is not None and found.bound >= cost(self._schedule)

    def _offer(self, found: OpenCandidate) -> None:
        """Make a candidate the best plan if it is cheaper, and drop those that it beats."""
        if self.best is None or (found.cost or NEVER) < cost(self._schedule):
            self.best = found
            self.open = [other for other in self.open if not self._is_beaten(other)]

    def _prove(self) -> str:
        """Look closer at whatever may be cheapest."""
        source = min(self.sources, key=lambda source: source.bound, default=None)
        most = min(self.open, key=lambda found: (found.bound, found.rounds), default=None)
        if source is not None and (most is None or source.bound < most.bound):
            self._look_at(source)
            return ""
        return "" if most is None else self._work_on(most)

    def _improve(self) -> str:
        """Look closer at the candidate with the cheapest schedule, later ones where it was looked at often."""
        known = [found for found in self.open if found.schedule is not None]
        if not known or self.budget.left <= 0:
            return ""
        return self._work_on(min(known, key=lambda found: (found.cost or NEVER) * (1 + 0.001 * found.rounds)))

    def _vary(self) -> None:
        """Schedule neighbours of the best plan by the heuristic that was best for it, as long as a turn takes."""
        until = self.budget.within(self._slice)
        while self.best is not None and until.left > 0 and not self.closed:
            best = self.best
            for candidate in islice(neighbours(self.problem, best.candidate, self._random), _MOST_NEIGHBOURS):
                if until.left <= 0 or self._try(candidate, best.start):
                    break
            else:
                return

    def _try(self, candidate: Candidate, heuristic: str) -> bool:
        """Schedule a candidate by a heuristic; return whether it is the best plan now."""
        found = self._opened(candidate, 0)
        if found is None:
            return False
        with suppress(NoScheduleError):
            found.schedule = schedule_of(found.instance, HEURISTICS[heuristic])
            found.method = found.start = heuristic
            self._offer(found)
        self._keep(found)
        return self.best is found

    def _work_on(self, found: OpenCandidate) -> str:
        """Let the method `best` work on a candidate for a while; return why a signal ended it, or ''."""
        seconds = self._slice * 2**found.rounds
        found.rounds += 1
        run = find_method("best").load()
        result = run(
            found.instance, self.budget.within(seconds), found.schedule or "best", lambda entry: None
        )
        if result.bound is not None and result.bound > found.bound:
            found.bound, found.proof = result.bound, result.proof or found.proof
            self.proofs.add(found.proof)
        if result.cost is not None and result.cost < (found.cost or NEVER):
            found.schedule, found.method = result.schedule, "best"
            self._offer(found)
        self.open = [other for other in self.open if not self._is_beaten(other)]
        self._note()
        return result.reason if was_stopped(result.reason) else ""

    def _note(self) -> None:
        """Log the cost and the bound where one of them is better than before."""
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
