"""Mixed-integer programming with PuLP: binaries for open orders, as in `cpsat.lattice`, and big-M rows."""

# PuLP loads highspy if it can. OR-Tools contains another HiGHS and cannot be loaded after highspy, so here
# OR-Tools is loaded first. PuLP then cannot load highspy and does not need it: HiGHS runs in another process.
from ..without_pandas import import_cp_model

import_cp_model()

from .milp_method import solve_milp  # noqa: E402

__all__ = ["solve_milp"]
