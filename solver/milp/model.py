"""The mixed-integer model: start times, and a binary for each order of items that the windows leave open.

References
----------
Qi et al., arXiv:2401.10241, appendix, use binaries for orders with big-M rows, for one stage per device.
Here, in addition, the items of a queue run in a fixed sequence, so the binaries of two queues are monotone in
both ranks. The big-M of each row comes from windows of schedules that cost at most as much as a known one.
"""

from __future__ import annotations

from collections.abc import Callable

import pulp

from tightpipe.core.schedule import Order, Schedule

from ..queues import Queues, Word, order_of, starts_of
from ..windows import Windows
from .constraints import Constraints, minimise_cost
from .variables import Variable, Variables

Value = Callable[[Variable], float]


class MilpModel:
    """A PuLP model whose solutions are the schedules of cost at most a horizon; it minimises the cost.

    Parameters
    ----------
    queues
        The queues of the instance.
    windows
        Feasible windows, for the same horizon.
    lower_bound
        A proven bound of the cost, in ticks.
    """

    def __init__(self, queues: Queues, windows: Windows, lower_bound: int) -> None:
        self.queues, self.instance = queues, queues.instance
        self.problem = pulp.LpProblem("tightpipe", pulp.LpMinimize)
        self.variables = Variables(self.problem, queues, windows, lower_bound)
        Constraints(self.problem, queues, self.variables).add_constraints()
        minimise_cost(self.problem, queues, self.variables)

    def set_start(self, schedule: Schedule, cost: int) -> None:
        """Start the search from a schedule with split backwards and microbatches first in, first out.

        `cost` is the cost of the schedule in ticks.
        """
        v = self.variables
        start = starts_of(self.queues, schedule)
        begin = [int(schedule.start.max())] * len(v.begin)
        for on, frame in zip(v.on, v.frame, strict=True):
            begin[frame] = min(begin[frame], *(start[v.first[q]] for q in on))
        origin = v.windows.origin(start)
        v.set_start([time - origin for time in start], [time - origin for time in begin], cost)

    def order(self, value: Value) -> Order:
        """Return the order that the binaries of a solution describe; its start times are not used.

        The position of an item on its device is the number of items that the binaries put before it.
        """
        return order_of(self.queues, [self._word(on, value) for on in self.variables.on])

    def _word(self, on: list[int], value: Value) -> Word:
        v = self.variables
        position = {i: k for q in on for k, i in enumerate(v.items(q))}
        for x in on:
            for y in on:
                if x < y:
                    self._count_pairs(x, y, value, position)
        queue_of = {i: q for q in on for i in v.items(q)}
        return [queue_of[i] for i in sorted(position, key=lambda i: (position[i], i))]

    def _count_pairs(self, x: int, y: int, value: Value, position: dict[int, int]) -> None:
        """Add to the position of each item of queue x the number of items of y before it, and vice versa."""
        v = self.variables
        for k, i in enumerate(v.items(x)):
            ranks = v.open_ranks(i, y)
            open_before = [value(o) > 0.5 for o in v.order[x, y, k]]
            for rank, j in enumerate(v.items(y)):
                first = rank >= ranks.stop or (rank in ranks and open_before[rank - ranks.start])
                position[j if first else i] += 1
