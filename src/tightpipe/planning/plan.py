"""A plan: what `tightpipe.plan` answers."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.instance import Instance
from ..core.metrics import cost, peak_memory
from ..core.result import LogEntry, Proof, Status
from ..core.schedule import Schedule
from .candidate import Candidate, held_apart, numbers_of
from .problem import PlanningProblem


@dataclass(frozen=True, slots=True)
class Plan:
    """A partition, a placement, recomputed layers and a schedule, with a bound over the whole search space.

    Parameters
    ----------
    problem
        What was asked.
    status
        `optimal` if the cost equals the bound; `infeasible` if it is proven that nothing in the search space
        fits the memory; `unknown` if time ended before any schedule was found.
    candidate, schedule
        The best plan, or None where none was found. The schedule has passed the validator.
    method
        The method that found the schedule.
    bound
        No plan in the search space has a step that costs fewer ticks; None where nothing fits.
    proof
        What the bound rests on; None where there is no bound.
    seconds
        Wall time of the search.
    considered
        Number of candidates for which a schedule was searched for.
    log
        Costs and bounds over time.
    reason
        Why there is no plan, or why the search ended early; empty otherwise.
    """

    problem: PlanningProblem
    status: Status
    candidate: Candidate | None
    schedule: Schedule | None
    method: str
    bound: int | None
    proof: Proof | None
    seconds: float
    considered: int = 0
    log: tuple[LogEntry, ...] = ()
    reason: str = ""

    @property
    def instance(self) -> Instance | None:
        """The scheduling problem of the plan's stages; None without a plan."""
        return None if self.schedule is None else self.schedule.instance

    @property
    def cost(self) -> int | None:
        """Ticks of one step; None without a plan."""
        return None if self.schedule is None else cost(self.schedule)

    @property
    def gap(self) -> float | None:
        """(cost - bound) / cost, the largest share that another plan could save; None without a plan."""
        found = self.cost
        return None if found is None or self.bound is None else (found - self.bound) / found

    @property
    def peak_memory(self) -> list[int] | None:
        """The largest use of each device in bytes, static state and reserve included; None without a plan."""
        if self.schedule is None or self.candidate is None:
            return None
        stages = numbers_of(self.problem, self.candidate)
        apart = held_apart(self.problem, self.candidate.placement, stages)
        return [held + int(peak) for held, peak in zip(apart, peak_memory(self.schedule), strict=True)]
