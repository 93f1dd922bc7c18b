"""A member that runs one search for a lower bound, to its end, in a single step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf

from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.result import Bound, Progress
from tightpipe.params.budget import Budget

from ..bounds.relaxed import Relaxed, relaxed, without_copies
from ..outcome import FINISHED, End, Ended, Outcome
from ..queues import Rule, is_modelled
from ..windows import are_crowded
from .incumbent import Incumbent
from .worker import Begin, Worker

Search = Callable[[Instance, int, Budget, int, Progress], Bound]
"""A search for a lower bound.

It takes an instance, the cost of a known schedule in ticks, a budget, the best bound so far in ticks, and a
function to call with each better bound. It returns the best bound that it proves.
"""


class BoundSearch:
    """Raises the bound of an incumbent by one search, within a share of the time.

    - `search`: the search. It proves of one cost after another that no schedule has this cost or a lower one.
    - `incumbent`: the schedule whose cost the search starts from, and the bound that it raises.
    - `narrow`: the instance that is searched: that of the incumbent, or one whose bounds hold for it.
    - `share`: the share of the time left, 0 to 1, that the search may take when it begins.
    - `seconds`: the search takes no longer than this.
    - `tell`: called with the best bound that the search has proven.
    """

    def __init__(
        self,
        search: Search,
        incumbent: Incumbent,
        narrow: Relaxed,
        share: float = 1.0,
        *,
        seconds: float = inf,
        tell: Callable[[Bound], object] = lambda _: None,
    ) -> None:
        self._search, self._incumbent, self._narrow = search, incumbent, narrow
        self._share, self._seconds, self._tell = share, seconds, tell

    def step(self, worker: Worker) -> Outcome:
        """Run the search, which ends this member."""
        known, narrow = self._incumbent, self._narrow
        if are_crowded(arrays_of(narrow.instance), worker.whole.params.windows):
            return Ended(End.UNSUITED)
        budget = worker.budget.part(self._share).within(self._seconds)
        upper, lower = known.cost - narrow.around, known.bound - narrow.around
        found = self._search(narrow.instance, upper, budget, lower, narrow.tell(known.update))
        bound = replace(found, value=found.value + narrow.around)
        known.prove(bound.value, bound.proof)
        self._tell(bound)
        return FINISHED


def bounding(
    search: Search,
    incumbent: Incumbent,
    share: float = 1.0,
    *,
    knows: Callable[[Instance], bool] = lambda instance: is_modelled(instance, Rule.CLASSES),
    seconds: float = inf,
    tell: Callable[[Bound], object] = lambda _: None,
) -> list[Begin]:
    """Return what begins a search on each instance whose bounds hold for that of the incumbent.

    That is the instance itself, but for copies (`without_copies`), if the search `knows` all of its rules.
    There is none if the search knows no such instance. The other parameters are those of `BoundSearch`;
    `share` is that of all searches together.
    """
    instance = without_copies(incumbent.schedule.instance)
    narrower = (Relaxed(instance, 0),) if knows(instance) else relaxed(instance)
    covered = [narrow for narrow in narrower if knows(narrow.instance)]
    each = share / max(1, len(covered))

    def begin(narrow: Relaxed, _: Worker) -> BoundSearch:
        return BoundSearch(search, incumbent, narrow, each, seconds=seconds, tell=tell)

    return [partial(begin, narrow) for narrow in covered]
