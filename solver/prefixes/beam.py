"""Beam search: of all prefixes with equally many operations, only those that promise most are kept.

The prefixes that are extended are the *beam*. The number of prefixes in a beam is its width.
"""

from __future__ import annotations

from math import inf

import numpy as np

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget

from ..bounds.relaxed import is_searchable
from ..engine.portfolio import Worker
from ..engine.run import Incumbent
from ..outcome import FINISHED, End, Ended, Outcome, Worked
from ..queues import queues_of
from .few_devices import FewDevices, StartWindows, few_devices, is_whole, operations_of, start_windows
from .table_kernel import FREE, LAST, Table, rows_of
from .tables import Trail, first_table, latest_of, most_bytes, next_table

_MANY = 10**9  # prefixes, more than any table has room for


class BeamSearch:
    """A search for a schedule inside windows that extends only the best of the prefixes with equal lengths.

    At most `width` rows are extended after each operation, fewer if the process would need too much memory
    for them. `is_searchable` and `is_whole` are true for the instance and its devices. When the
    search has `ended`, it has a `schedule`, unless it was ended early, or no prefix of the beam has led to a
    schedule inside the windows, which are feasible.

    Notes
    -----
    Prefixes with equally many operations are compared by a measure of lost time, which is the sum of two
    terms. The first term adds up, over all devices, the least time at which the device could end all of its
    work; without lost time it would be a constant. The second term is the parameter `waiting` times the
    ticks until a microbatch can go on, added up over all microbatches under way. The search proves nothing.

    If every device has a frame of its own, microbatches of a class that begins on another device may start
    before tick 0, which is where the anchor's frame begins. Then the first term would favour those that start
    earliest, although a device that runs early by itself gains nothing. So nothing starts before tick 0 here.
    """

    def __init__(self, instance: Instance, windows: StartWindows, width: int, budget: Budget) -> None:
        problem = few_devices(windows, range(instance.devices))
        self._problem = problem._replace(earliest=np.maximum(problem.earliest, 0))
        self._tables = [first_table(self._problem)]
        self._trail, self._budget = Trail(queues_of(instance), self._problem), budget
        self._left = operations_of(self._problem)
        self._width = min(width, most_bytes(budget) // (self._trail.bytes_of_row * self._left))
        self.ended = False
        self.schedule: Schedule | None = None

    def step(self) -> float:
        """Go on for a fraction of a second; return the seconds that it takes on a usual machine.

        They are estimated from the number of prefixes.
        """
        made, params = 0, self._budget.params.beams
        while self._left and made < params.batch:
            following = next_table(self._problem, self._tables, _MANY, self._budget)
            if following is None:
                self.ended = True
                return made / params.pace
            kept = best_rows(self._problem, following, self._width, params.waiting)
            self._tables = latest_of(self._problem, [*self._tables, kept])
            made += rows_of(following)
            if not any(map(rows_of, self._tables)):
                self.ended = True
                return made / params.pace
            self._trail.keep(kept)
            self._left -= 1
        if not self._left:
            self.ended = True
            if rows_of(self._tables[-1]):
                self.schedule = self._trail.schedule(self._tables[-1])
        return made / params.pace


def best_rows(problem: FewDevices, table: Table, width: int, waiting: float) -> Table:
    """Return a table of `width` undominated rows that lost least time; waiting counts by `waiting`."""
    rows = np.flatnonzero(table.alive[: rows_of(table)])
    if len(rows) > width:
        rows = rows[np.argpartition(_lost_time(problem, table, rows, waiting), width)[:width]]
    columns = ("started", "times", "parent", "queue", "partner", "alive")
    kept = {name: getattr(table, name)[rows] for name in columns}
    return table._replace(**kept, counter=np.array([len(rows), *table.counter[1:]]))


def _lost_time(problem: FewDevices, table: Table, rows: Ints, weight_of_waiting: float) -> Floats:
    """Return the time in ticks that each of the rows has lost so far, up to a constant; shape (rows,)."""
    queues, devices = problem.queues, len(problem.devices)
    times, left = table.times[rows], queues["count"] - table.started[rows].astype(np.int64)
    pending = times[:, FREE + devices : FREE + 2 * devices]
    # A W is still to be run where the B has not run yet, and where the B has run and the W is pending.
    weight = problem.devices["weight"]
    ends = times[:, FREE : FREE + devices].sum(axis=1) + pending @ weight + left @ queues["least"]
    arrivals = times[:, FREE + 2 * devices :]
    waiting = np.maximum(0, arrivals - times[:, LAST, np.newaxis]).sum(axis=1)
    return np.asarray(ends + weight_of_waiting * waiting, np.float64)


class Beams:
    """Runs beam searches for a lower cost, and offers their schedules to the incumbent.

    There is no search if prefixes do not know a rule of the instance, or if the W's of a device differ,
    because prefixes do not determine a schedule then. A wider search begins only if it will probably fit into
    what is left of `share`, the share of the worker's time that the searches may take.
    """

    def __init__(self, instance: Instance, incumbent: Incumbent, share: float, worker: Worker) -> None:
        self._instance, self._incumbent = instance, incumbent
        self._suits = is_searchable(instance) and is_whole(arrays_of(instance), range(instance.devices))
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
        windows = start_windows(self._instance, self._incumbent.cost - 1, worker.budget)
        if not windows.feasible:
            return None
        self._begun = worker.seconds
        left = worker.budget if worker.whole.endless else worker.budget.within(self._end - self._begun)
        return BeamSearch(self._instance, windows, width, left)
