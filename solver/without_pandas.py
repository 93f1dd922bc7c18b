"""Import the Python module of CP-SAT without pandas.

`ortools.sat.python.cp_model` imports pandas, for methods that make a table of variables at once. tightpipe
never calls them, and loading pandas takes almost half a second in each process that solves. Therefore
CP-SAT's module, and no other, gets a stand-in for pandas, which imports pandas when such a method first uses
it. Other modules import pandas as usual, even while CP-SAT's module is being imported.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from tightpipe.core.errors import InputError

CP_MODEL = "ortools.sat.python.cp_model"


def import_cp_model() -> None:
    """Import CP-SAT's Python module and leave pandas for later; later imports find the same module.

    Raises
    ------
    InputError
        If highspy was loaded before: its HiGHS and the HiGHS of OR-Tools have functions of the same names.
    """
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        import_module(CP_MODEL)
    except ImportError as error:
        if "highspy" not in sys.modules:
            raise
        rule = f"OR-Tools cannot be loaded after highspy, which PuLP loads: import {CP_MODEL} before them"
        raise InputError(rule) from error
    finally:
        sys.meta_path.remove(finder)


class _Pandas(ModuleType):
    """Stands in for pandas: each attribute is `Any` until `needed` is set; later pandas itself supplies it.

    `Any` is enough while CP-SAT's module is being imported, because it only names types of pandas then.
    """

    needed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("pandas"), name) if self.needed else Any


class _Loader(SourceFileLoader):
    """Runs a module in which the statement ``import pandas`` gives the stand-in."""

    def exec_module(self, module: ModuleType) -> None:
        pandas = _Pandas("pandas")

        def imported(name: str, *how: Any) -> ModuleType:
            return pandas if name == "pandas" else builtins.__import__(name, *how)

        vars(module)["__builtins__"] = {**vars(builtins), "__import__": imported}
        super().exec_module(module)
        pandas.needed = True


class _Finder(MetaPathFinder):
    """Finds CP-SAT's module and no other, and has it loaded by `_Loader`, without pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == CP_MODEL else None
        if spec is not None and spec.origin is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(fullname, spec.origin)
        return spec
