"""OR-Tools and highspy, of which only one can be loaded after the other."""

from __future__ import annotations

import subprocess
import sys

from tightpipe.solver.programs import CP_MODEL, import_cp_model


def printed(code: str) -> str:
    """What a process of its own prints: this one has loaded OR-Tools long ago."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_import_finds_the_same_module() -> None:
    import_cp_model()
    module = sys.modules[CP_MODEL]
    import_cp_model()
    assert sys.modules[CP_MODEL] is module


def test_after_pulp_one_line_says_what_to_import_before() -> None:
    code = """
import pulp
from tightpipe import InputError, Instance, solve
instance = Instance.uniform(devices=2, microbatches=2, forward=3, backward=4, weight=2, comm=1)
try:
    solve(instance, "cpsat", time_limit=10)
except InputError as error:
    print(error)
"""
    rule = "OR-Tools cannot be loaded after highspy, which PuLP loads: import ortools.sat.python.cp_model before them"
    assert printed(code) == f"{rule}\n"
