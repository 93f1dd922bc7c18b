"""Settle whether there is a block of a period, with linear programs beside the search."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.budget import Budget

from ...block import Block, Shape
from .model import PeriodicModel


def settle(shape: Shape, period: int, budget: Budget, effort: float) -> tuple[Block | None, bool]:
    """Ask CP-SAT with its presolve and linear programs for a block of at most a period.

    Where there is none, this mostly proves it in a second where the search without them needs minutes; where
    there is one, the search without them finds it sooner. A signal is heard when the question ends.

    Parameters
    ----------
    shape
        What the blocks consist of.
    period
        Ticks, at least `period_bound` of the shape.
    budget
        The limits; one thread is used.
    effort
        Limit of the search in CP-SAT's deterministic time.

    Returns
    -------
    tuple
        A block or None, and whether it is proven that there is none.
    """
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = budget.seed
    solver.parameters.max_time_in_seconds = budget.seconds_for_solver
    solver.parameters.max_deterministic_time = effort
    solver.parameters.catch_sigint_signal = False
    model = PeriodicModel(shape, period)
    status = solver.solve(model.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        model.order([solver.value(start) for start in model.start])
    return model.block, status == cp_model.INFEASIBLE
