"""A candidate that the search has looked at: its best schedule, its bound, and the work on both."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.instance import Instance
from ..core.metrics import cost
from ..core.result import Proof
from ..core.schedule import Schedule
from .candidate import Candidate
from .device_bound_kernel import NEVER


@dataclass(slots=True)
class OpenCandidate:
    """A candidate with its instance, and the best bound and schedule that are known of it.

    Parameters
    ----------
    candidate, instance
        The candidate, and the scheduling problem that it leaves open.
    bound, proof
        A lower bound, in ticks, of the cost of every schedule of the instance, and what the bound rests on.
    schedule, method
        The cheapest schedule so far and the method that found it; None and '' where none was found.
    heuristic, heuristic_cost
        The heuristic that found the cheapest schedule of all heuristics, and its cost in ticks.
    proofs, searches
        How many times a solver has worked on the instance, to raise its bound and to find cheaper schedules.
    gained
        By how many ticks the last one of the searches has lowered the cost.
    """

    candidate: Candidate
    instance: Instance
    bound: int
    proof: Proof
    schedule: Schedule | None = None
    method: str = ""
    heuristic: str = ""
    heuristic_cost: int = NEVER
    proofs: int = 0
    searches: int = 0
    gained: int = 0

    @property
    def cost(self) -> int | None:
        """Cost of the cheapest schedule in ticks; None if no schedule is known."""
        return None if self.schedule is None else cost(self.schedule)

    @property
    def closed(self) -> bool:
        """Whether the cheapest schedule is proven optimal."""
        return self.cost is not None and self.bound >= self.cost
