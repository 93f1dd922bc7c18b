"""Exact solving with CP-SAT: two models of the problem, and whether a schedule of a given cost exists."""

from ..without_pandas import import_cp_model

import_cp_model()  # before the modules below import it, with all that it takes along

from .cpsat_method import fifo_is_valid, solve_cpsat  # noqa: E402
from .decide import Decision, decide, refute  # noqa: E402

__all__ = ["Decision", "decide", "fifo_is_valid", "refute", "solve_cpsat"]
