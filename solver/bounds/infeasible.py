"""Linear inequalities over a box, and a proof in integers that they have no solution."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from ..clock import LONGEST, Clock

UNIT = 2**20  # of a variable: its bounds are integers in these parts
_FINE = 2**40  # the largest multiplier of a proof
_SECONDS_PER_ENTRY = 1e-5  # HiGHS forgets a time limit that ends during its presolve


@dataclass(slots=True)
class Inequalities:
    """Rows "sum of coefficient times variable is at least a number" over a box; all of it integers.

    Parameters
    ----------
    lower, upper
        Bounds of the variables, in parts of `UNIT`.
    least
        The number of each row.
    row, column, coefficient
        The entries; those of one place add up.
    """

    lower: list[int] = field(default_factory=list)
    upper: list[int] = field(default_factory=list)
    least: list[int] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    coefficient: list[int] = field(default_factory=list)

    def add_variable(self, lower: int, upper: int) -> None:
        """Add a variable with bounds in parts of `UNIT`."""
        self.lower.append(lower)
        self.upper.append(upper)

    def at_least(self, terms: Iterable[tuple[int, int]], number: int) -> None:
        """Add a row of (variable, coefficient) terms."""
        for column, coefficient in terms:
            self.row.append(len(self.least))
            self.column.append(column)
            self.coefficient.append(coefficient)
        self.least.append(number)

    def shortfall(self, point: list[int]) -> list[int]:
        """Return by how much a point misses each row, both in parts of `UNIT`; at most 0 where it holds."""
        missing = [number * UNIT for number in self.least]
        for row, column, coefficient in zip(self.row, self.column, self.coefficient, strict=True):
            missing[row] -= coefficient * point[column]
        return missing

    def refuted_by(self, multiplier: list[int]) -> bool:
        """Whether the rows, added up with these multipliers, are more than any point of the box gives.

        Negative multipliers count as 0. Then no point of the box satisfies all rows (Farkas' lemma); the
        arithmetic is exact, wherever the multipliers come from.
        """
        factor = [max(0, value) for value in multiplier]
        total = [0] * len(self.lower)
        for row, column, coefficient in zip(self.row, self.column, self.coefficient, strict=True):
            total[column] += coefficient * factor[row]
        most = sum(max(c * a, c * b) for c, a, b in zip(total, self.lower, self.upper, strict=True))
        return sum(f * number for f, number in zip(factor, self.least, strict=True)) * UNIT > most


def is_infeasible(system: Inequalities, clock: Clock) -> bool:
    """Whether a proof is found within the time limit that the system has no solution.

    Notes
    -----
    A variable e loosens every row by as much as its multiple of what the box's lower corner misses, so
    that e = 1 has a solution. HiGHS minimises e by interior points; its duals, scaled and rounded,
    are tried as multipliers. What they prove does not rest on floating point.
    """
    if clock.left < _SECONDS_PER_ENTRY * len(system.row):
        return False
    missing = np.array(system.shortfall(system.lower), float) / UNIT
    row, column = np.array(system.row), np.array(system.column)
    coefficient = np.array(system.coefficient, float)
    size = np.maximum(missing, 1.0)
    np.maximum.at(size, row, np.abs(coefficient))
    rows = np.arange(len(size))[missing > 0]
    duals = _duals(
        np.array([*system.lower, 0], float) / UNIT,
        np.array([*system.upper, UNIT], float) / UNIT,
        np.array(system.least, float) / size,
        np.concatenate([row, rows]),
        np.concatenate([column, np.full(len(rows), len(system.lower))]),
        np.concatenate([coefficient / size[row], missing[rows] / size[rows]]),
        clock,
    )
    if duals is None or not np.all(np.isfinite(duals)):
        return False
    multiplier = duals / size
    largest = float(multiplier.max(initial=0))
    if largest <= 0:
        return False
    return system.refuted_by(np.rint(multiplier * (_FINE / largest)).astype(np.int64).tolist())


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def _duals(
    lower: Floats, upper: Floats, least: Floats, row: Ints, column: Ints, value: Floats, clock: Clock
) -> Floats | None:
    """Minimise the last variable; return the duals of the rows, None where there are none."""
    matrix = _merged(row, column, value, len(lower))
    program = model_pb2.ModelProto()
    program.variables.ids.extend(range(len(lower)))
    program.variables.lower_bounds.extend(lower.tolist())
    program.variables.upper_bounds.extend(upper.tolist())
    program.variables.integers.extend([False] * len(lower))
    program.linear_constraints.ids.extend(range(len(least)))
    program.linear_constraints.lower_bounds.extend(least.tolist())
    program.linear_constraints.upper_bounds.extend([np.inf] * len(least))
    program.linear_constraint_matrix.row_ids.extend(matrix[0].tolist())
    program.linear_constraint_matrix.column_ids.extend(matrix[1].tolist())
    program.linear_constraint_matrix.coefficients.extend(matrix[2].tolist())
    program.objective.linear_coefficients.ids.append(len(lower) - 1)
    program.objective.linear_coefficients.values.append(1.0)
    model = mathopt.Model.from_model_proto(program)
    try:
        result = mathopt.solve(model, mathopt.SolverType.HIGHS, params=_parameters(clock))
    except (RuntimeError, AttributeError):  # HiGHS gave up; OR-Tools 9.15 stumbles over its own message
        return None
    if not result.has_dual_feasible_solution():
        return None
    return np.array(result.dual_values([model.get_linear_constraint(i) for i in range(len(least))]))


def _parameters(clock: Clock) -> mathopt.SolveParameters:
    seconds = datetime.timedelta(seconds=min(max(clock.left, 0.01), LONGEST))
    parameters = mathopt.SolveParameters(time_limit=seconds, lp_algorithm=mathopt.LPAlgorithm.BARRIER)
    parameters.highs.string_options["run_crossover"] = "off"
    return parameters


def _merged(row: Ints, column: Ints, value: Floats, columns: int) -> tuple[Ints, Ints, Floats]:
    """Return the entries in the sequence of rows and columns, those of one place added up."""
    place, index = np.unique(row * columns + column, return_inverse=True)
    total = np.bincount(index, value, len(place))
    keep = total != 0
    return place[keep] // columns, place[keep] % columns, total[keep]
