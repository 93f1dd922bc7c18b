"""The interface of a backend, which runs a mixed-integer solver and reports solutions and bounds."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, isfinite
from typing import Protocol

from tightpipe.core.budget import Budget

from .model import MilpModel, Value

OBJECTIVE_GAP = 0.9  # costs are integers, so a cost is optimal if a bound is less than 1 tick below it


class Watch(Protocol):
    """Receives the solutions and the bounds that a backend finds."""

    def solution(self, value: Value) -> None:
        """Take a solution, given as a function from a variable of the model to its value."""

    def bound(self, value: float) -> None:
        """Take a dual bound of the cost, in ticks."""


Backend = Callable[[MilpModel, Budget, Watch], str]
"""Runs a model until it is solved or no time is left, and returns why it ended early.

The result is the empty string if the model was solved or time was up, and else a reason, such as Ctrl-C or a
solver that failed.
"""


def proven_cost(dual_bound: float) -> int | None:
    """Return the least integer cost that a backend's dual bound allows; None if that bound is not finite.

    Backends work in floating point, with feasibility tolerances of about 1e-6 of the numbers in the model.
    Those numbers are at most about as large as the cost. So 1e-6 of the bound, and at least 1e-4, is taken
    off before the bound is rounded up.
    """
    if not isfinite(dual_bound):
        return None
    return ceil(dual_bound - max(1e-4, 1e-6 * abs(dual_bound)))
