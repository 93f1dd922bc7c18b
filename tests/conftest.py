"""Hypothesis profile of all tests, and which tests run only where their folder is asked for by name."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tightpipe.kernels import ensure_compiled

# compiled loops make the first example slow, so no deadlines; CI draws the same examples every time
settings.register_profile("tightpipe", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tightpipe")

BY_NAME = {"browser", "torch"}  # need a browser or PyTorch: make test-browser, make test-torch


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = {part for arg in config.args for part in Path(arg.split("::")[0]).parts}
    return True if collection_path.name in BY_NAME - asked else None


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Compile before the first test: tests look at what commands say on stderr."""
    ensure_compiled()
