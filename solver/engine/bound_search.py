"""A member that runs one search for a lower bound, to its end, in a single step."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from math import inf

from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.result import Bound, Progress
from tightpipe.params.budget import Budget

from ..bounds.relaxed import KNOWN_TO_WINDOWS, asked_about, split_backwards
from ..outcome import FINISHED, End, Ended, Outcome
from ..queues import Rule
from ..windows import are_crowded
from .incumbent import Incumbent
from .portfolio import Begin, Worker

Search = Callable[[Instance, int, Budget, int, Progress], Bound]
"""A search for a lower bound.

It takes an instance, the cost of a known schedule in ticks, a budget, the best bound so far in ticks, and a
function to call with each better bound. It returns the best bound that it proves.
"""


class BoundSearch:
    """Raises the bound of an incumbent by one search, within a share of the time.

    - `search`: the search. It proves of one cost after another that no schedule has this cost or a lower one.
    - `incumbent`: the schedule whose cost the search starts from, and the bound that it raises.
    - `about`: the instance that is searched: that of the incumbent, or one whose bounds hold for it.
    - `share`: the share of the time left, 0 to 1, that the search may take when it begins.
    - `seconds`: the search takes no longer than this.
    - `tell`: called with the best bound that the search has proven.
    """

    def __init__(
        self,
        search: Search,
        incumbent: Incumbent,
        about: Instance,
        share: float = 1.0,
        *,
        seconds: float = inf,
        tell: Callable[[Bound], object] = lambda _: None,
    ) -> None:
        self._search, self._incumbent, self._about = search, incumbent, about
        self._share, self._seconds, self._tell = share, seconds, tell

    def step(self, worker: Worker) -> Outcome:
        """Run the search, which ends this member."""
        known, about = self._incumbent, self._about
        if are_crowded(arrays_of(about), worker.whole.params.windows):
            return Ended(End.UNSUITED)
        budget = worker.budget.part(self._share).within(self._seconds)
        bound = self._search(about, known.cost, budget, known.bound, known.update)
        known.prove(bound.value, bound.proof)
        self._tell(bound)
        return FINISHED


def bounding(
    search: Search,
    incumbent: Incumbent,
    share: float = 1.0,
    *,
    known: Set[Rule] = KNOWN_TO_WINDOWS,
    cut: bool = True,
    seconds: float = inf,
    tell: Callable[[Bound], object] = lambda _: None,
) -> list[Begin]:
    """Return what begins a search that knows these rules; nothing if there is no instance to ask it about.

    Windows cut fused backwards such that the B's are as long as they can be (`windows`). With
    `cut`, the search is also asked about the instance in which the W's are. The other parameters are those
    of `BoundSearch`; `share` is that of both searches together.
    """
    about = asked_about(incumbent.schedule.instance, known)
    if about is None:
        return []
    asked = (about, *split_backwards(about)[1:]) if cut else (about,)

    def begin(one: Instance, _: Worker) -> BoundSearch:
        return BoundSearch(search, incumbent, one, share / len(asked), seconds=seconds, tell=tell)

    return [partial(begin, one) for one in asked]
