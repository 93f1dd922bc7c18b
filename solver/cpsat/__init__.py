"""Exact solving with CP-SAT: to minimise the cost, or to decide whether any schedule meets a target."""

from ..programs import import_cp_model

import_cp_model()  # before the modules below, which would raise a bare ImportError after highspy

from .cpsat_method import solve_cpsat  # noqa: E402
from .targets import Decision, decide  # noqa: E402

__all__ = ["Decision", "decide", "solve_cpsat"]
