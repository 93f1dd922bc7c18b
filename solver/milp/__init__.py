"""Mixed-integer programming with PuLP: the order booleans of the lattice model with big-M rows."""

from .milp_method import solve_milp

__all__ = ["solve_milp"]
