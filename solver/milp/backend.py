"""What a backend is: it runs a model and tells of solutions and bounds as they come."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, isfinite
from typing import Protocol

from tightpipe.core.budget import Budget

from .model import MilpModel, Value

OBJECTIVE_GAP = 0.9  # costs are integers: a bound that is closer than 1 to a cost proves it


class Watch(Protocol):
    """Receives what a backend finds."""

    def solution(self, value: Value) -> None:
        """Take a solution: the value of each variable of the model."""

    def bound(self, value: float) -> None:
        """Take a dual bound of the cost."""


Backend = Callable[[MilpModel, Budget, Watch], str]
"""Runs a model until it is solved or no time is left; returns why it ended early, else "".

A time limit is no reason, but Ctrl-C and a solver that fails are.
"""


def proven_cost(dual_bound: float) -> int | None:
    """Return the least integer cost that a backend's dual bound leaves possible; None where it has none.

    Backends work in floating point, with feasibility tolerances of about 1e-6 of the numbers in the
    model, which are at most about as large as the cost: that much is taken off before rounding up.
    """
    if not isfinite(dual_bound):
        return None
    return ceil(dual_bound - max(1e-4, 1e-6 * abs(dual_bound)))
