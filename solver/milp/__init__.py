"""Mixed-integer programming with PuLP: binaries for open orders, as in `cpsat.lattice`, and big-M rows."""

from ..programs import import_cp_model

import_cp_model()  # before PuLP

from .milp_method import solve_milp  # noqa: E402

__all__ = ["solve_milp"]
