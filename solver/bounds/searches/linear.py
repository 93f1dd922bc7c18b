"""Linear inequalities over a box, proofs in integers that they have no solution, and duals from HiGHS."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.params.budget import Budget

UNIT = 2**20  # the bounds of a variable are integer multiples of 1 / UNIT
_FINE = 2**40  # the multipliers of a proof are scaled so that the largest one is this


@dataclass(slots=True)
class Inequalities:
    """Rows "the sum of coefficient times variable is at least a number", with bounds for each variable.

    All numbers are integers.

    - `lower`, `upper`: the bounds of each variable, as multiples of 1 / `UNIT`.
    - `least`: the number on the right-hand side of each row.
    - `row`, `column`, `coefficient`: the entries of the matrix; entries of the same row and column add up.
    """

    lower: list[int] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    least: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    coefficient: list[int] = field(default_factory=list)

    def add_variable(self, lower: int, upper: int) -> None:
        """Add a variable whose bounds are given as multiples of 1 / `UNIT`."""
        self.lower.append(lower)
        self.upper.append(upper)

    def at_least(self, terms: Sequence[tuple[int, int]], number: int) -> None:
        """Add the row that says: the sum of these (variable, coefficient) terms is at least `number`."""
        self.row += [len(self.least)] * len(terms)
        self.column += [column for column, _ in terms]
        self.coefficient += [coefficient for _, coefficient in terms]
        self.least.append(number)

    def shortfall(self, point: list[int]) -> list[int]:
        """Return by how much a point misses each row, at most 0 where the row holds.

        The point and the result are multiples of 1 / `UNIT`.
        """
        missing = [number * UNIT for number in self.least]
        for row, column, coefficient in zip(self.row, self.column, self.coefficient, strict=True):
            missing[row] -= coefficient * point[column]
        return missing

    def refuted_by(self, multiplier: list[int]) -> bool:
        """Return whether these multipliers of the rows prove that no point of the box satisfies all rows.

        They do if the sum of the rows times their multipliers requires more than any point of the box reaches
        (Farkas' lemma). Negative multipliers count as 0. The arithmetic is exact, so the multipliers may come
        from floating-point numbers.
        """
        factor = [max(0, value) for value in multiplier]
        total = [0] * len(self.lower)
        for row, column, coefficient in zip(self.row, self.column, self.coefficient, strict=True):
            total[column] += coefficient * factor[row]
        most = sum(max(c * a, c * b) for c, a, b in zip(total, self.lower, self.upper, strict=True))
        return sum(f * number for f, number in zip(factor, self.least, strict=True)) * UNIT > most


def is_infeasible(system: Inequalities, budget: Budget) -> bool:
    """Return whether the system is proven, before the deadline, to have no solution.

    Notes
    -----
    An added variable e loosens every row by e times the amount by which the lower corner of the box misses
    the row, so there is a solution with e = 1. HiGHS minimises e by an interior point method; where the least
    e is above 0, the system has no solution. The duals, scaled and rounded to integers, are tried as
    multipliers (`Inequalities.refuted_by`), so that the proof does not rest on floating point.
    """
    # HiGHS ignores a time limit that ends during its presolve.
    if budget.left < budget.params.fluid.seconds_per_entry * len(system.row):
        return False
    missing = np.array(system.shortfall(system.lower), float) / UNIT
    row, column = np.array(system.row), np.array(system.column)
    coefficient = np.array(system.coefficient, float)
    size = np.maximum(missing, 1.0)
    np.maximum.at(size, row, np.abs(coefficient))
    rows = np.arange(len(size))[missing > 0]
    program = LinearProgram(
        np.array([*system.lower, 0], float) / UNIT,
        np.array([*system.upper, UNIT], float) / UNIT,
        np.array(system.least, float) / size,
        *merged(
            np.concatenate([row, rows]),
            np.concatenate([column, np.full(len(rows), len(system.lower))]),
            np.concatenate([coefficient / size[row], missing[rows] / size[rows]]),
            len(system.lower) + 1,
        ),
    )
    duals = duals_of(program, budget)
    if duals is None or not np.all(np.isfinite(duals)):
        return False
    multiplier = duals / size
    largest = float(multiplier.max(initial=0))
    if largest <= 0:
        return False
    return system.refuted_by(np.rint(multiplier * (_FINE / largest)).astype(np.int64).tolist())


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """A linear program that minimises its last variable; rows have a least value, and variables have bounds.

    - `lower`, `upper`: the bounds of each variable.
    - `least`: the least value of each row.
    - `row`, `column`, `value`: the entries of the matrix, sorted by row and column, at most one for each
      (row, column).
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
