"""A member of a portfolio: beam searches for cheaper schedules, each wider than the last one."""

from __future__ import annotations

from math import inf

from tightpipe.core.graph_arrays import arrays_of
from tightpipe.core.instance import Instance

from ..engine.incumbent import Incumbent
from ..engine.worker import Worker
from ..outcome import FINISHED, End, Ended, Outcome, Worked
from ..queues import queues_of
from ..windows import windows_of
from .beam import BeamSearch
from .few_devices import is_whole


class Beams:
    """Runs beam searches for a lower cost, and offers their schedules to the incumbent.

    Parameters
    ----------
    instance
        A problem that solvers model. There is no search if the W's of a device differ, because prefixes do
        not determine a schedule then.
    incumbent
        The schedule to improve.
    share
        The share of the worker's time, 0 to 1, that the searches may take. A wider search begins only if it
        will probably fit into the rest of this share.
    worker
        The worker that runs this member.
    """

    def __init__(self, instance: Instance, incumbent: Incumbent, share: float, worker: Worker) -> None:
        self._queues, self._incumbent = queues_of(instance), incumbent
        self._suits = is_whole(arrays_of(instance), range(instance.devices))
        self._end = worker.seconds + share * worker.expected if worker.whole.limited else inf
        self._widths = iter(worker.whole.params.beams.widths)
        self._search: BeamSearch | None = None
        self._begun = self._took = 0.0

    def step(self, worker: Worker) -> Outcome:
        """Begin the next search, or go on with the present one."""
        if not self._suits:
            return Ended(End.UNSUITED)
        if self._search is None:
            self._search = self._next_search(worker)
        if self._search is None:
            return FINISHED
        effort = self._search.step()
        if self._search.ended:
            self._incumbent.offer(self._search.schedule)
            self._search = None
            self._took = worker.seconds + effort - self._begun
        return Worked(effort)

    def _next_search(self, worker: Worker) -> BeamSearch | None:
        """Return the next search; None if there is none, or if it would probably take too long."""
        width, longer = next(self._widths, None), worker.whole.params.beams.longer
        if width is None or self._incumbent.closed or worker.seconds + longer * self._took > self._end:
            return None
        windows = windows_of(self._queues, self._incumbent.cost - 1, worker.budget)
        if not windows.feasible:
            return None
        self._begun = worker.seconds
        left = worker.budget if worker.whole.endless else worker.budget.within(self._end - self._begun)
        return BeamSearch(self._queues, windows, width, left)
