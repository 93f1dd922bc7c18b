"""A member that runs one search for a lower bound, to its end, in a single step."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress
from tightpipe.core.result import Bound

from ..outcome import FINISHED, Outcome
from .incumbent import Incumbent
from .worker import Worker

Search = Callable[[Instance, int, Budget, int, Progress], Bound]
"""A search for a lower bound.

It takes an instance, the cost of a known schedule in ticks, a budget, the best bound so far in ticks, and a
function to call with each better bound. It returns the best bound that it proves.
"""


class BoundSearch:
    """Raises the bound of an incumbent by one search, within a share of the time.

    Parameters
    ----------
    search
        The search. It proves of one cost after another that no schedule has this cost or a lower one.
    incumbent
        The schedule whose cost the search starts from, and the bound that it raises.
    share
        The share of the time left, 0 to 1, that the search may take when it begins.
    seconds
        The search takes no longer than this.
    tell
        Called with the best bound that the search has proven.
    """

    def __init__(
        self,
        search: Search,
        incumbent: Incumbent,
        share: float = 1.0,
        *,
        seconds: float = inf,
        tell: Callable[[Bound], object] = lambda _: None,
    ) -> None:
        self._search, self._incumbent = search, incumbent
        self._share, self._seconds, self._tell = share, seconds, tell

    def step(self, worker: Worker) -> Outcome:
        """Run the search, which ends this member."""
        known = self._incumbent
        budget = worker.budget.part(self._share).within(self._seconds)
        bound = self._search(known.schedule.instance, known.cost, budget, known.bound, known.update)
        known.prove(bound.value, bound.proof)
        self._tell(bound)
        return FINISHED
