"""The lattice model: queues, open order booleans, windows from a horizon.

References
----------
The start-time model of a job shop with its order booleans made a distributive lattice: two queues on
one device interleave along a monotone staircase, so "the k-th of x before the l-th of y" implies the
same for every earlier k and later l.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.metrics import largest_work
from tightpipe.core.schedule import Order, Schedule

from ...queues import Queues, Word, order_of, starts_of
from ...windows import Windows
from .constraints import Constraints
from .variables import Variables

_MUCH_IDLE = 0.13  # of the horizon


class LatticeModel:
    """Find a schedule of cost at most the horizon of `windows`, or the cheapest one.

    Parameters
    ----------
    queues
        The problem.
    windows
        Feasible windows.
    lower_bound
        A proven bound of the cost.
    minimise
        Whether to minimise the cost, or to look for any schedule within the horizon.
    """

    def __init__(self, queues: Queues, windows: Windows, lower_bound: int, *, minimise: bool = True) -> None:
        self.queues, self.instance, self.horizon = queues, queues.instance, windows.horizon
        # where little may idle, what precedes an F says when it starts (`idle_time`), and searches without
        # CP-SAT's own reasoning about it take half of the time; where much may, ten times as many conflicts
        idle = windows.horizon - largest_work(queues.instance)
        self.with_precedences = idle > _MUCH_IDLE * windows.horizon
        self.model = cp_model.CpModel()
        self.variables = Variables(self.model, queues, windows)
        self.cost = self.model.new_int_var(lower_bound, windows.horizon, "cost")
        if minimise:
            self.model.minimize(self.cost)
        most = self.cost if minimise else windows.horizon
        Constraints(self.model, queues, self.variables, most).add_constraints()

    def add_hint(self, schedule: Schedule, cost: int) -> None:
        """Hint a complete schedule in queue order, backwards split; it may cost more than the horizon."""
        start = starts_of(self.queues, schedule)
        origin = self.variables.windows.origin(start)
        self.variables.add_hint(self.model, [time - origin for time in start])
        self.model.add_hint(self.cost, cost)

    @property
    def start(self) -> list[cp_model.IntVar]:
        """Start times, in the sequence that `order` takes."""
        return self.variables.start

    def order(self, start: list[int]) -> Order:
        """Return the order of the items from their start times."""
        return order_of(self.queues, [self._word(on, start) for on in self.variables.on])

    def _word(self, on: list[int], start: list[int]) -> Word:
        return [q for _, q in sorted((start[i], q) for q in on for i in self.variables.items(q))]
