"""Hypothesis profile of all tests, which of them are slow, and which run only where their folder is named."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tightpipe.solving.ensure_compiled import ensure_compiled

# compiled loops make the first example slow, so no deadlines; CI draws the same examples every time
settings.register_profile("tightpipe", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tightpipe")

# files whose tests take seconds each, or sum up to more than ten; make quick leaves them out
SLOW = {
    *("docs/test_documents.py", "core/test_files.py", "core/test_interruption.py", "kernels/test_kernels.py"),
    "cli/test_startup.py",
    *(
        f"experiments/test_{name}.py"
        for name in ("compare", "dask", "exact", "published_tables", "realistic", "slurm", "sweep")
    ),
    *("milp/test_milp_optima.py", "milp/test_milp_solve.py", "program/test_lowering.py"),
    *(f"solver/test_cpsat_{name}.py" for name in ("optima", "solve")),
    *(f"solver/test_{name}.py" for name in ("energetic", "fluid", "fold", "memory_limit", "neighbourhood")),
    *("solver/test_independent.py", "solver/test_soundness.py", "solver/test_windows.py"),
}
BY_NAME = {"browser", "torch"}  # need a browser or PyTorch: make test-browser, make test-torch


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = {part for arg in config.args for part in Path(arg.split("::")[0]).parts}
    return True if collection_path.name in BY_NAME - asked else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Compile before the first test: tests look at what commands say on stderr."""
    ensure_compiled()
