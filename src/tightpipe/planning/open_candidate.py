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
        Name of the heuristic that found the cheapest schedule of all heuristics, and the cost of this
        schedule in ticks; '' and `NEVER` if no heuristic has found a schedule.
    proofs, searches
        How many times a solver has tried to raise the bound, and to find a cheaper schedule. Each further
        time takes twice as long. For a relaxed candidate, the number of searches is one higher, so that they
        take longer.
    gained
        By how many ticks the last search has lowered the cost.
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
