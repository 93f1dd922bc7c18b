"""Mixed-integer programming with PuLP: a binary for the order of two items, as in CP-SAT, and big-M rows."""

# PuLP loads highspy if it can. OR-Tools contains another HiGHS and cannot be loaded after highspy, so it is
# loaded first. Then PuLP cannot load highspy, but does not need it: HiGHS runs in another process here.
from ..without_pandas import import_cp_model

import_cp_model()

from .milp_method import solve_milp  # noqa: E402

__all__ = ["solve_milp"]
