"""Settles whether there is a repeating block of a given period, by CP-SAT with linear programs."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.budget import Budget

from ...block import Block, Shape
from .model import PeriodicModel


def settle(shape: Shape, period: int, budget: Budget, effort: float) -> tuple[Block | None, bool]:
    """Search for a block of a given period by CP-SAT with its presolve and its linear programs.

    If there is no such block, this search mostly proves so in a second, where a search without presolve and
    linear programs needs minutes. If there is one, the search without them finds it sooner. A signal such as
    Ctrl-C takes effect only when the search ends.

    Parameters
    ----------
    shape
        What the blocks consist of.
    period
        The period in ticks, at least `period_bound` of the shape.
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
