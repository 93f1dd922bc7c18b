"""CP-SAT: the lattice formulation, the plain one beside it, and the decision version."""

from .cpsat_method import fifo_is_valid, solve_cpsat
from .decide import Decision, decide, refute

__all__ = ["Decision", "decide", "fifo_is_valid", "refute", "solve_cpsat"]
