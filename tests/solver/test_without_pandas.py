"""Exact solves load no pandas, and whoever needs it beside them still gets it."""

from __future__ import annotations

import subprocess
import sys

from tightpipe.solver.without_pandas import CP_MODEL, import_cp_model

INSTANCE = """
import sys
from tightpipe import Instance, solve

instance = Instance.uniform(devices=2, microbatches=2, forward=3, backward=4, weight=2, comm=1)
"""


def printed(code: str) -> list[str]:
    """What a process of its own prints: this one has loaded pandas long ago."""
    done = subprocess.run([sys.executable, "-c", INSTANCE + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_exact_solves_load_no_pandas() -> None:
    code = """
for method in ("cpsat", "milp", "best"):
    print(solve(instance, method, time_limit=10).status, "pandas" in sys.modules)
"""
    assert printed(code) == ["optimal False"] * 3


def test_a_table_of_variables_is_one_of_pandas() -> None:
    code = """
import tightpipe.solver.cpsat
from ortools.sat.python import cp_model

def table(index):
    return cp_model.CpModel().new_bool_var_series("x", index)

try:
    table(["a", "b"])
except TypeError as error:
    print(error)
print("pandas" in sys.modules)
import pandas
print(list(table(pandas.Index(["a", "b"])).index), type(table(pandas.Index([1]))) is pandas.Series)
"""
    refused, *rest = printed(code)
    assert "index" in refused
    assert rest == ["True", "['a', 'b'] True"]


def test_pandas_may_come_first() -> None:
    code = """
import pandas
import tightpipe.solver.cpsat
from ortools.sat.python import cp_model
print(cp_model.CpModel().new_bool_var_series("x", pandas.Index(["a"])).index.tolist(), sys.modules["pandas"] is pandas)
"""
    assert printed(code) == ["['a'] True"]


def test_a_second_import_finds_the_same_module_and_leaves_nothing_behind() -> None:
    import_cp_model()
    module, finders = sys.modules[CP_MODEL], list(sys.meta_path)
    import_cp_model()
    assert sys.modules[CP_MODEL] is module
    assert sys.meta_path == finders


def test_after_pulp_one_line_says_what_to_import_before() -> None:
    code = """
import pulp
from tightpipe import InputError
try:
    solve(instance, "cpsat", time_limit=10)
except InputError as error:
    print(error)
"""
    (refused,) = printed(code)
    assert (
        "cannot be loaded after highspy, which PuLP loads: import ortools.sat.python.cp_model before"
        in refused
    )
