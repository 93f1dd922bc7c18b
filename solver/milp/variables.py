"""The variables of the mixed-integer model: starts of items and frames, the cost, and binaries for orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pulp

from ..orders import OpenOrders
from ..queues import Queues
from ..windows import Windows

Variable = Any  # a pulp.LpVariable: PuLP has no types


@dataclass(slots=True)
class Linear:
    """The expression ``constant + sum(coefficient * variable)``, to which terms are added in place.

    Parameters
    ----------
    constant
        The constant term.
    terms
        Pairs (variable, coefficient), at most one for each variable.
    """

    constant: int = 0
    terms: list[tuple[Variable, int]] = field(default_factory=list)

    def plus(self, variable: Variable, coefficient: int = 1) -> Linear:
        """Add a term to the expression, and return the expression."""
        self.terms.append((variable, coefficient))
        return self

    def at_least(self, problem: pulp.LpProblem, least: int) -> None:
        """Add the row ``expression >= least`` to a problem, unless the expression has no variables."""
        if self.terms:
            sense = pulp.LpConstraintGE
            expression = pulp.LpAffineExpression(self.terms)
            problem.addConstraint(pulp.LpConstraint(expression, sense, rhs=least - self.constant))


class Variables(OpenOrders):
    """The variables of the model, and linear expressions of them that several constraints need.

    Only the cost and the binaries for orders have to be integers. With these fixed, the start times satisfy a
    system of difference constraints with integer data, which has an integer solution if it has any solution.

    Parameters
    ----------
    problem
        The PuLP problem that receives the variables.
    queues
        The queues of the instance.
    windows
        Feasible windows. The order of two items needs no binary if the windows decide it.
    lower_bound
        A proven bound of the cost, in ticks.

    Attributes
    ----------
    frame
        For each device, the index of its frame in `begin`.
    cost, begin, start
        The cost, the start of each frame, and the start of each item.
    order
        For queues x < y of a device and the item of rank k in x: a binary for each item of y with open order.
    """

    def __init__(self, problem: pulp.LpProblem, queues: Queues, windows: Windows, lower_bound: int) -> None:
        super().__init__(queues, windows)
        self.frame = list(range(len(self.on))) if windows.floating else [0] * len(self.on)
        self.cost = problem.add_variable("cost", lower_bound, windows.horizon, cat="Integer")
        self.begin = self._begins(problem)
        self.start = self._starts(problem)
        self.order = self._orders(problem)

    def precedes(self, x: int, k: int, y: int, rank: int) -> Variable:
        """Return the binary "the item of rank k in queue x runs before the item of rank `rank` in queue y".

        The order of these two items has to be open, and x has to be less than y.
        """
        return self.order[x, y, k][rank - self.open_ranks(self.first[x] + k, y).start]

    def add_count_before(self, expression: Linear, weight: int, x: int, k: int, y: int) -> None:
        """Add to a linear expression, in place, a number of items times `weight`.

        The number is that of the items of queue y that run before the item of rank k in queue x.
        """
        ranks = self.open_ranks(self.first[x] + k, y)
        expression.constant += weight * ranks.start
        if x > y:
            for rank in ranks:
                expression.plus(self.precedes(y, rank, x, k), weight)
        else:
            expression.constant += weight * len(ranks)
            for rank in ranks:
                expression.plus(self.precedes(x, k, y, rank), -weight)

    def set_start(self, start: list[int], begin: list[int], cost: int) -> None:
        """Set the initial value of every variable (the MIP start) from a schedule.

        The items of the schedule start at the ticks `start`, and its frames at the ticks `begin`. The cost of
        the schedule is `cost` ticks.
        """
        self.cost.setInitialValue(cost)
        for frame, time in zip(self.begin, begin, strict=True):
            frame.setInitialValue(time)
        for var, time in zip(self.start, start, strict=True):
            var.setInitialValue(time)
        for (x, y, k), binaries in self.order.items():
            i = self.first[x] + k
            for rank, binary in zip(self.open_ranks(i, y), binaries, strict=True):
                binary.setInitialValue(int(start[i] < start[self.first[y] + rank]))

    def _begins(self, problem: pulp.LpProblem) -> list[Variable]:
        """Return a variable for the start of each frame; times count from the start of the anchor's frame."""
        early, late = self.windows.frames
        return [problem.add_variable(f"b{e}", early[e], late[e]) for e in sorted(set(self.frame))]

    def _starts(self, problem: pulp.LpProblem) -> list[Variable]:
        earliest, latest = self.windows.earliest.tolist(), self.windows.latest.tolist()
        return [
            problem.add_variable(f"s{q}_{i - self.first[q]}", earliest[i], latest[i])
            for q in range(len(self.queues))
            for i in self.items(q)
        ]

    def _orders(self, problem: pulp.LpProblem) -> dict[tuple[int, int, int], list[Variable]]:
        return {
            (x, y, k): [
                problem.add_variable(f"o{x}_{k}_{y}_{rank}", 0, 1, cat="Integer")
                for rank in self.open_ranks(i, y)
            ]
            for x, y in self.pairs()
            for k, i in enumerate(self.items(x))
        }
