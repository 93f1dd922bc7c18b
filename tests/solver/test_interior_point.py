"""Duals of a linear program, with which `infeasible` proves that there is no solution."""

from __future__ import annotations

import numpy as np
import pytest

from tightpipe.params.budget import UNLIMITED
from tightpipe.solver.bounds.searches.linear import LinearProgram, duals_of, merged


def test_entries_of_one_place_add_up_and_those_of_nothing_go() -> None:
    row, column, value = merged(
        np.array([1, 0, 0, 1, 0]), np.array([0, 2, 1, 0, 2]), np.array([1.0, 4.0, 5.0, -1.0, 3.0]), 3
    )
    assert (row.tolist(), column.tolist(), value.tolist()) == ([0, 0], [1, 2], [5.0, 7.0])


def test_duals_weigh_the_rows_that_bind() -> None:
    """Minimise y where x + y >= 3, y >= 1 and x is at most 1: y = 2, by the first row alone."""
    program = LinearProgram(
        lower=np.zeros(2),
        upper=np.array([1.0, 10.0]),
        least=np.array([3.0, 1.0]),
        row=np.array([0, 0, 1]),
        column=np.array([0, 1, 1]),
        value=np.ones(3),
    )
    duals = duals_of(program, UNLIMITED.within(60))
    assert duals is not None
    assert duals.tolist() == pytest.approx([1.0, 0.0], abs=1e-5)
