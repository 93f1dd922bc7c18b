"""CP-SAT: the lattice formulation, the plain one beside it, and the decision version."""

from .decide import Decision, decide, refute
from .solve import fifo_is_valid, solve_cpsat

__all__ = ["Decision", "decide", "fifo_is_valid", "refute", "solve_cpsat"]
