"""Duals of a linear program by interior points: HiGHS within OR-Tools, HiPO in a process of its own.

HiPO (HiGHS 1.15, with highspy-extras) factorises large sparse systems several times as fast as the other
interior point method of HiGHS; for small ones the process takes longer than the program. The libraries
of OR-Tools and highspy, two versions of HiGHS under one name, cannot be loaded by the same process.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from ..clock import Clock

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PROGRAM = Path(__file__).with_name("hipo_program.py")
_LARGE = 10_000  # variables: there both take about as long
_LATE = 5.0  # seconds over its time limit after which the process is killed
_LONGEST = 1e6  # seconds: one cannot wait for a process any longer


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise the last variable of a box, with rows that are at least a number.

    Parameters
    ----------
    lower, upper
        Bounds of the variables.
    least
        The number of each row.
    row, column, value
        The entries, in the sequence of rows and columns, one of each place.
    """

    lower: Floats
    upper: Floats
    least: Floats
    row: Ints
    column: Ints
    value: Floats


def merged(row: Ints, column: Ints, value: Floats, columns: int) -> tuple[Ints, Ints, Floats]:
    """Return the entries in the sequence of rows and columns, those of one place added up."""
    place, index = np.unique(row * columns + column, return_inverse=True)
    total = np.bincount(index, value, len(place))
    keep = total != 0
    return place[keep] // columns, place[keep] % columns, total[keep]


def duals_of(program: LinearProgram, clock: Clock) -> Floats | None:
    """Return the duals of the rows, None where there are none within the time limit."""
    solve = _by_hipo if len(program.lower) > _LARGE else _by_ortools
    return solve(program, min(max(clock.left, 0.01), _LONGEST))


def _by_hipo(program: LinearProgram, seconds: float) -> Floats | None:
    """Run the program `hipo_program` on the arrays; Ctrl-C ends it too."""
    given, command = BytesIO(), [sys.executable, "-P", str(_PROGRAM), str(seconds)]
    np.savez(given, **asdict(program))
    try:
        done = subprocess.run(
            command, input=given.getvalue(), capture_output=True, timeout=seconds + _LATE, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode or len(done.stdout) != program.least.nbytes:
        return None
    duals: Floats = np.frombuffer(done.stdout, np.float64)
    return duals


def _by_ortools(program: LinearProgram, seconds: float) -> Floats | None:
    model = mathopt.Model.from_model_proto(_model(program))
    parameters = mathopt.SolveParameters(
        time_limit=datetime.timedelta(seconds=seconds), lp_algorithm=mathopt.LPAlgorithm.BARRIER
    )
    parameters.highs.string_options["run_crossover"] = "off"
    try:
        result = mathopt.solve(model, mathopt.SolverType.HIGHS, params=parameters)
    except (RuntimeError, AttributeError):  # HiGHS gave up; OR-Tools 9.15 stumbles over its own message
        return None
    if not result.has_dual_feasible_solution():
        return None
    rows = [model.get_linear_constraint(i) for i in range(len(program.least))]
    return np.array(result.dual_values(rows))


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
