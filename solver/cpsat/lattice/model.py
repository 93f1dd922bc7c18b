"""The lattice model: start times of items, and booleans for the orders that the windows leave open.

This is the start-time model of a job shop, whose order booleans here form a distributive *lattice*. Two
queues x and y of one device interleave along a monotone staircase: "the k-th item of x before the l-th item
of y" implies the same for every smaller k and every larger l.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.metrics import largest_work
from tightpipe.core.params.solve_params import DEFAULTS
from tightpipe.core.schedule import Order, Schedule

from ...queues import Queues, Word, order_of, starts_of
from ...windows import Windows
from .constraints import Constraints
from .variables import Variables


class LatticeModel:
    """A CP-SAT model whose solutions are the schedules of cost at most a horizon.

    Parameters
    ----------
    queues
        The queues of the instance.
    windows
        Feasible windows; their horizon is also the horizon of the model.
    lower_bound
        A proven bound of the cost, in ticks.
    minimise
        Whether the model minimises the cost; otherwise any schedule within the horizon is a solution.
    much_idle
        Share of the horizon. CP-SAT reasons about precedences if the busiest device may idle longer.
    """

    def __init__(
        self,
        queues: Queues,
        windows: Windows,
        lower_bound: int,
        *,
        minimise: bool = True,
        much_idle: float = DEFAULTS.cpsat.much_idle,
    ) -> None:
        self.queues, self.instance, self.horizon = queues, queues.instance, windows.horizon
        # If devices may idle little, the rows of `idle_time` tie the start of an F to the items before it. A
        # search without CP-SAT's own reasoning about these predecessors then takes half of the time. If
        # devices may idle much, a search without that reasoning has ten times as many conflicts.
        idle = windows.horizon - largest_work(queues.instance)
        self.with_precedences = idle > much_idle * windows.horizon
        self.model = cp_model.CpModel()
        self.variables = Variables(self.model, queues, windows)
        self.cost = self.model.new_int_var(lower_bound, windows.horizon, "cost")
        if minimise:
            self.model.minimize(self.cost)
        most = self.cost if minimise else windows.horizon
        Constraints(self.model, queues, self.variables, most).add_constraints()

    def add_hint(self, schedule: Schedule, cost: int) -> None:
        """Give CP-SAT a schedule and its cost in ticks as a hint.

        The backwards of the schedule are split, and its queues run first in, first out. The schedule may cost
        more than the horizon.
        """
        start = starts_of(self.queues, schedule)
        origin = self.variables.windows.origin(start)
        self.variables.add_hint(self.model, [time - origin for time in start])
        self.model.add_hint(self.cost, cost)

    @property
    def start(self) -> list[cp_model.IntVar]:
        """The variables of the start times, in the sequence in which `order` expects their values."""
        return self.variables.start

    def order(self, start: list[int]) -> Order:
        """Return the order of the items, given their start times in ticks."""
        return order_of(self.queues, [self._word(on, start) for on in self.variables.on])

    def _word(self, on: list[int], start: list[int]) -> Word:
        return [q for _, q in sorted((start[i], q) for q in on for i in self.variables.items(q))]
