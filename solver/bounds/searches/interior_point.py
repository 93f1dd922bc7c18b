"""Duals of a linear program by the interior point method of HiGHS, through OR-Tools."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import numpy as np
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from tightpipe.core.budget import Budget
from tightpipe.kernels.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """A linear program that minimises its last variable; rows have a least value, and variables have bounds.

    Parameters
    ----------
    lower, upper
        The bounds of each variable.
    least
        The least value of each row.
    row, column, value
        The entries of the matrix, sorted by row and column, at most one for each (row, column).
    """

    lower: Floats
    upper: Floats
    least: Floats
    row: Ints
    column: Ints
    value: Floats


def merged(row: Ints, column: Ints, value: Floats, columns: int) -> tuple[Ints, Ints, Floats]:
    """Return the entries of a matrix with `columns` columns, sorted by row and column.

    Entries of the same row and column are added up, and sums that are 0 are left out.
    """
    place, index = np.unique(row * columns + column, return_inverse=True)
    total = np.bincount(index, value, len(place))
    keep = total != 0
    return place[keep] // columns, place[keep] % columns, total[keep]


def duals_of(program: LinearProgram, budget: Budget) -> Floats | None:
    """Return feasible dual values of the rows, None if HiGHS gives up or finds none before the deadline."""
    model = mathopt.Model.from_model_proto(_model(program))
    parameters = mathopt.SolveParameters(
        time_limit=datetime.timedelta(seconds=budget.seconds_for_solver),
        lp_algorithm=mathopt.LPAlgorithm.BARRIER,
    )
    parameters.highs.string_options["run_crossover"] = "off"
    nothing = mathopt.VariableFilter(filtered_items=())  # to turn values into dictionaries takes long
    only_duals = mathopt.ModelSolveParameters(variable_values_filter=nothing, reduced_costs_filter=nothing)
    try:
        result = mathopt.solve(model, mathopt.SolverType.HIGHS, params=parameters, model_params=only_duals)
    except (RuntimeError, AttributeError):  # HiGHS gave up, or OR-Tools 9.15 failed to report so
        return None
    if not result.has_dual_feasible_solution():
        return None
    duals = np.zeros(len(program.least))
    for row, dual in result.dual_values().items():
        duals[row.id] = dual
    return duals


def _model(program: LinearProgram) -> model_pb2.ModelProto:
    model, rows, columns = model_pb2.ModelProto(), len(program.least), len(program.lower)
    model.variables.ids.extend(range(columns))
    model.variables.lower_bounds.extend(program.lower.tolist())
    model.variables.upper_bounds.extend(program.upper.tolist())
    model.variables.integers.extend([False] * columns)
    model.linear_constraints.ids.extend(range(rows))
    model.linear_constraints.lower_bounds.extend(program.least.tolist())
    model.linear_constraints.upper_bounds.extend([np.inf] * rows)
    model.linear_constraint_matrix.row_ids.extend(program.row.tolist())
    model.linear_constraint_matrix.column_ids.extend(program.column.tolist())
    model.linear_constraint_matrix.coefficients.extend(program.value.tolist())
    model.objective.linear_coefficients.ids.append(columns - 1)
    model.objective.linear_coefficients.values.append(1.0)
    return model
