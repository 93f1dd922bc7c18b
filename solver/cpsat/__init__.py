"""Exact solving with CP-SAT: two models of the problem, and whether a schedule of a given cost exists."""

from .cpsat_method import fifo_is_valid, solve_cpsat
from .decide import Decision, decide, refute

__all__ = ["Decision", "decide", "fifo_is_valid", "refute", "solve_cpsat"]
