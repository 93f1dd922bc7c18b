"""CP-SAT's Python module is imported before PuLP, or the error says that it has to be.

OR-Tools and highspy contain two versions of HiGHS with functions of the same names. PuLP loads highspy if it
can, and OR-Tools cannot be loaded after highspy. PuLP that is loaded after OR-Tools cannot load highspy, and
does not need it: HiGHS runs in a process of its own.
"""

from __future__ import annotations

import sys
from importlib import import_module

from tightpipe.base.errors import InputError

CP_MODEL = "ortools.sat.python.cp_model"


def import_cp_model() -> None:
    """Import CP-SAT's Python module.

    Raise an InputError if highspy was loaded before.
    """
    try:
        import_module(CP_MODEL)
    except ImportError as error:
        if "highspy" not in sys.modules:
            raise
        rule = f"OR-Tools cannot be loaded after highspy, which PuLP loads: import {CP_MODEL} before them"
        raise InputError(rule) from error
