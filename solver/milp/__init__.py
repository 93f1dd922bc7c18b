"""Mixed-integer programming with PuLP: the order booleans of the lattice model with big-M rows."""

# PuLP loads highspy where it can, and OR-Tools, which has a HiGHS of its own, cannot be loaded after highspy.
# So OR-Tools comes first: PuLP then does without highspy, which solves in a process of its own here.
import ortools.sat.python.cp_model  # noqa: F401

from .milp_method import solve_milp

__all__ = ["solve_milp"]
