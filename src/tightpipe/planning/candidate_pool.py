"""All candidates that a search has looked at: their schedules and bounds, and the best plan of all."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter

from tightpipe.heuristics import HEURISTICS
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.outcome import FINISHED, End, Ended

from ..base.errors import InputError, NoScheduleError
from ..base.interruption import was_stopped
from ..model.instance import Instance
from ..model.orders import accepted
from ..model.placement import Placement
from ..model.result import LogEntry, Progress, Proof, refuse_contradiction
from ..model.schedule import Schedule
from ..params.budget import UNLIMITED, Budget, TimeUpError
from ..registry.methods import find_method
from ..registry.starts import StartClock
from .candidate import Candidate, gathers_again, instance_of
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .fixed_orders import FixedOrder, fixed_orders, orders_of
from .gathers import step_ticks, with_gathers
from .partitions import Partitions
from .problem import SOLVER, PlanningProblem
from .runtimes import runnable


class CandidatePool:
    """The candidates that a search has looked at, and those that it has not yet taken from their sources.

    - `sources`: what yields further candidates of each configuration, in ascending order of their bounds.
    - `open`: the candidates whose bound is below the cost of the best plan; the pool has looked at
      `considered` in all.
    - `best`, `climber`: the candidate with the cheapest schedule, and the one with the cheapest schedule by
      heuristics; None where there is none.
    - `bound`, `raised`: a lower bound, in ticks, of the cost of all plans in the search space, and when it
      was raised last, in seconds of `perf_counter`.
    - `log`: one entry, also given to `progress`, for each new cost or bound.
    - `ended`: how the last solver ended if a signal stopped it; `FINISHED` otherwise.
    """

    def __init__(self, problem: PlanningProblem, sources: list[Partitions], progress: Progress) -> None:
        self.problem, self.sources, self._progress = problem, list(sources), progress
        self._ended: list[Partitions] = []  # sources without a further candidate; their bounds still count
        self._first_bounds: dict[Scope, int] = {}
        for source in sources:
            scope = scope_of(source.configuration)
            self._first_bounds[scope] = min(source.bound, self._first_bounds.get(scope, NEVER))
        self._proven: dict[Scope, int] = {}
        self._known: dict[Candidate, OpenCandidate | None] = {}  # None for candidates that do not fit
        self.open: list[OpenCandidate] = []
        self.best: OpenCandidate | None = None
        self.climber: OpenCandidate | None = None
        self.considered, self.bound, self.ended = 0, 0, FINISHED
        self.log: list[LogEntry] = []
        self._proofs = {Proof.FORMULA}
        self._begun = self.raised = perf_counter()
        self.heuristics = [name for name in problem.methods_for() if name in HEURISTICS]

    @property
    def proof(self) -> Proof:
        """What the bound rests on: of all kinds of proofs that were used, the one that needs most trust."""
        return max(self._proofs, key=list(Proof).index)

    @property
    def cost(self) -> int:
        """The cost of the best plan in ticks; `NEVER` if there is none."""
        return NEVER if self.best is None or self.best.cost is None else self.best.cost

    @property
    def closed(self) -> bool:
        """Whether no plan can be cheaper than the best one, or no candidate is left and there is no plan."""
        self._note()
        return self.bound >= self.cost

    def is_beaten(self, bound: int) -> bool:
        """Return whether a candidate with this bound, in ticks, cannot be cheaper than the best plan."""
        return self.best is not None and bound >= self.cost

    def bound_of(self, source: Partitions) -> int:
        """Return a lower bound, in ticks, of what a source has left."""
        return max(source.bound, self._proven.get(scope_of(source.configuration), 0))

    def prove(self, configuration: Configuration, bound: int, proof: Proof) -> None:
        """Note a bound, in ticks, of all candidates in the scope of a configuration, and what it rests on."""
        if bound > self._proven.get(scope_of(configuration), 0):
            self._proven[scope_of(configuration)] = bound
            self._proofs.add(proof)
            self._note()

    def take(
        self, source: Partitions, until: Budget = UNLIMITED, *, all_heuristics: bool = True
    ) -> OpenCandidate | None:
        """Take the next candidate of a source and schedule it by all heuristics, or by that of the climber.

        Return what `look_at` returns, or None if no candidate is left, and then the source is removed, or if
        the time of `until` is up before.
        """
        bound = source.bound
        try:
            candidate = source.take(until)
        except TimeUpError:
            return None
        except InputError:  # longer stages have too many ways to be recomputed
            candidate = None
        if candidate is None:
            self.sources.remove(source)
            self._ended.append(source)
            return None
        heuristics = self.heuristics
        if not (all_heuristics or self.climber is None):
            heuristics = [self.climber.heuristic]
        return self.look_at(candidate, heuristics, bound, until)

    def look_at(
        self, candidate: Candidate, heuristics: list[str], bound: int = 0, until: Budget = UNLIMITED
    ) -> OpenCandidate | None:
        """Schedule a candidate by heuristics, and return it with its bound and its cheapest schedule.

        Return None if heuristics have scheduled it before, if it does not fit the memory, or if it cannot be
        cheaper than the best plan. `bound` is a lower bound of its cost in ticks. Heuristics that do not know
        its placement are left out, and `until` limits the time of the others, as `StartClock` says. Where the
        runtime cannot be told what is recomputed, the same is done with the candidates of `runnable`.
        """
        told = runnable(self.problem, candidate)
        if told == ((candidate,),):
            return self._look_at(candidate, heuristics, bound, until)
        looked = [self._look_at_ways(ways, heuristics, until) for ways in told]
        return min(filter(None, looked), key=lambda found: found.heuristic_cost, default=None)

    def _look_at_ways(
        self, ways: Iterable[Candidate], heuristics: list[str], until: Budget
    ) -> OpenCandidate | None:
        """Schedule the first of some candidates that has a schedule, each of which recomputes more."""
        for way in ways:
            found = self._look_at(way, heuristics, 0, until)
            known = self._known.get(way)
            if known is not None and known.cost is not None:
                return found
        return None

    def _look_at(
        self, candidate: Candidate, heuristics: list[str], bound: int, until: Budget
    ) -> OpenCandidate | None:
        found = self._opened(candidate, bound)
        if found is None or (found.heuristic and not found.hurried):
            return None
        found.hurried = False
        fixed = fixed_orders(self.problem, found.instance)
        if fixed:
            found.bound = max(found.bound, fixed[0].ticks)
        if self.is_beaten(found.bound):
            self._drop_beaten()
            return None
        if fixed:
            self._schedule_in(found, fixed)
        else:
            self._schedule_by_heuristics(found, heuristics, until)
        self._offer(found)
        return found

    def _schedule_by_heuristics(self, found: OpenCandidate, heuristics: list[str], until: Budget) -> None:
        """Schedule a candidate by those of some heuristics that may schedule it, while there is time."""
        candidate = found.candidate
        clock = StartClock(found.instance, until)
        allowed = self.problem.methods_for(any(candidate.recomputed), gathers_again(self.problem, candidate))
        able = [
            heuristic
            for heuristic in allowed
            if heuristic in HEURISTICS and candidate.placement.name in HEURISTICS[heuristic].placements
        ]
        for heuristic in able:
            if heuristic in heuristics and clock.has_time_for(HEURISTICS[heuristic]):
                with suppress(NoScheduleError):
                    self._keep_start(
                        found, clock.schedule_of(found.instance, HEURISTICS[heuristic]), heuristic
                    )

    def solve(self, found: OpenCandidate, method: str, budget: Budget) -> None:
        """Let a method work on a candidate, from its cheapest schedule; keep a better bound or schedule."""
        run = find_method(method).load()
        result = run(found.instance, budget, found.schedule or "best", lambda entry: None)
        if result.bound is not None and result.bound > found.bound:
            found.bound, found.proof = result.bound, result.proof or found.proof
            self._proofs.add(found.proof)
        if result.schedule is not None:
            found.solved = result.cost == result.bound
            self.keep(found, result.schedule, SOLVER)
        self.ended = Ended(End.STOPPED, result.reason) if was_stopped(result.reason) else FINISHED
        self._offer(found)

    def keep(self, found: OpenCandidate, schedule: Schedule, method: str) -> int:
        """Let a schedule, with its gathers, replace a dearer one; return the cost of the new one in ticks."""
        schedule = with_gathers(self.problem, found.candidate, schedule)
        ticks = step_ticks(self.problem, found.candidate, schedule)
        if ticks < (NEVER if found.cost is None else found.cost):
            found.schedule, found.cost, found.method = schedule, ticks, method
        return ticks

    def _schedule_in(self, found: OpenCandidate, orders: list[FixedOrder]) -> None:
        """Find the cheapest schedule of a candidate that may have these orders alone, by ascending ticks.

        Gathers and memory decide among them: an order costs its ticks at least. So the bound of the candidate
        is then the cost of that schedule, or `NEVER` if no order fits the memory.
        """
        for one in orders:
            if one.ticks >= found.heuristic_cost:
                break
            with suppress(InputError):  # memory does not suffice
                self._keep_start(found, accepted(found.instance, one.order), one.method)
        found.bound = max(found.bound, found.heuristic_cost)

    def _keep_start(self, found: OpenCandidate, schedule: Schedule, heuristic: str) -> None:
        ticks = self.keep(found, schedule, heuristic)
        if ticks < found.heuristic_cost:
            found.heuristic, found.heuristic_cost = heuristic, ticks

    def _opened(self, candidate: Candidate, bound: int) -> OpenCandidate | None:
        """Return a candidate's `OpenCandidate`; None if it does not fit or cannot be the cheapest plan."""
        found = self._known[candidate] if candidate in self._known else self._new(candidate)
        if found is not None:
            found.bound = max(found.bound, bound)
        return None if found is None or self.is_beaten(found.bound) else found

    def _new(self, candidate: Candidate) -> OpenCandidate | None:
        self._known[candidate] = None
        try:
            instance = instance_of(self.problem, candidate)
        except InputError:  # it does not fit after all: bounds of partitions use rounded numbers
            return None
        if instance.infeasibility() is not None:
            return None
        self.considered += 1
        bound, proof = self._first_bounds.get(scope_of(candidate), 0), Proof.FORMULA
        if not orders_of(self.problem, candidate.placement):  # else its cost is found as fast
            formula = best_bound(instance)
            bound, proof = max(formula.value, bound), formula.proof
        found = self._known[candidate] = OpenCandidate(candidate, instance, bound, proof)
        if not self.is_beaten(bound):
            self.open.append(found)
        return found

    def _offer(self, found: OpenCandidate) -> None:
        """Let a candidate replace the climber and the best plan if it is cheaper, and update the bound."""
        if found.heuristic_cost < (NEVER if self.climber is None else self.climber.heuristic_cost):
            self.climber = found
        if found.cost is not None and found.cost < self.cost:
            if found.schedule is not None and found.cost < self.bound:
                refuse_contradiction(found.schedule, self.bound, self.proof, "of all plans")
            self.best = found
            self._gather_more(found)
        self._drop_beaten()
        self._note()

    def _gather_more(self, found: OpenCandidate) -> None:
        """Let the order of a plan run with as many stages gathered as have room: it gets no slower."""
        assert found.schedule is not None
        for kept in self.problem.residents(found.candidate.placement):
            if kept is None or found.candidate.resident is None or kept <= found.candidate.resident:
                return
            more = self._opened(replace(found.candidate, resident=kept), 0)
            if more is None:
                continue
            with suppress(InputError):  # memory does not suffice
                self.keep(more, accepted(more.instance, found.schedule.order), found.method)
                self._offer(more)
                return

    def _drop_beaten(self) -> None:
        self.open = [found for found in self.open if not self.is_beaten(found.bound)]

    def _note(self) -> None:
        """Update the bound of all plans, and log cost and bound if one of them has changed."""
        bounds = [self.bound_of(source) for source in (*self.sources, *self._ended)]
        bounds += [max(found.bound, self._proven.get(scope_of(found.candidate), 0)) for found in self.open]
        bound = min([*bounds, self.cost])
        if bound > self.bound:
            self.raised = perf_counter()
        self.bound = bound
        best = None if self.best is None else self.best.cost
        entry = LogEntry(perf_counter() - self._begun, best, self.bound, self.proof)
        if not self.log or (entry.cost, entry.bound) != (self.log[-1].cost, self.log[-1].bound):
            self.log.append(entry)
            self._progress(entry)


Scope = tuple[Placement, int | None]
"""A placement and how many stages of a device stay gathered: what bounds of many cuts are about."""


def scope_of(one: Candidate | Configuration) -> Scope:
    """Return the scope of a candidate or a configuration."""
    return one.placement, one.resident


@dataclass(slots=True)
class OpenCandidate:
    """A candidate with its instance, and the best bound and schedule that are known of it.

    - `bound`, `proof`: a lower bound, in ticks, of the cost of every schedule of the instance, and what it
      rests on.
    - `schedule`, `method`: the cheapest schedule so far and the method that found it, if any.
    - `cost`: its ticks of a step, with all gathers of parameters.
    - `solved`: whether a solver has proven its schedule optimal, but for gathers that no solver knows.
    - `heuristic`, `heuristic_cost`: the heuristic with the cheapest schedule, and its cost in ticks; '' and
      `NEVER` if no heuristic has found a schedule.
    - `hurried`: whether only a few of the heuristics were asked, so that others may follow.
    - `proofs`, `searches`: how many times a solver has tried to raise the bound, and to find a cheaper
      schedule. For a relaxed candidate, the number of searches is one higher, so that they take longer.
    - `gained`: by how many ticks the last search has lowered the cost.
    """

    candidate: Candidate
    instance: Instance
    bound: int
    proof: Proof
    schedule: Schedule | None = None
    method: str = ""
    cost: int | None = None
    solved: bool = False
    heuristic: str = ""
    heuristic_cost: int = NEVER
    hurried: bool = False
    proofs: int = 0
    searches: int = 0
    gained: int = 0

    @property
    def closed(self) -> bool:
        """Whether the cheapest schedule is proven optimal."""
        return self.cost is not None and self.bound >= self.cost
