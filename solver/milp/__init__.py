"""Mixed-integer programming with PuLP: binaries for the orders of items, as in CP-SAT, and big-M rows."""

# PuLP loads highspy where it can, and OR-Tools, which has a HiGHS of its own, cannot be loaded after highspy.
# So OR-Tools is loaded first. PuLP then does without highspy, which runs in another process here anyway.
from ..without_pandas import import_cp_model

import_cp_model()

from .milp_method import solve_milp  # noqa: E402

__all__ = ["solve_milp"]
