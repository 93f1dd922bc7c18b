"""Hypothesis profile of all tests, which of them are slow, and which run only in certain places.

The slow files come first and begin with the slowest, so that no process is left with a long test at the end.
"""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import settings
from slow import SLOW

from tightpipe.solving.ensure_compiled import ensure_compiled

# compiled loops make the first example slow, so no deadlines; CI draws the same examples every time
settings.register_profile("tightpipe", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tightpipe")

TESTS = Path(__file__).parent
IS_CHECKOUT = (TESTS.parent / "src/tightpipe").is_dir()  # a copy of the tests has no source beside it
BY_NAME = {"browser", "torch"}  # need a browser or PyTorch: make test-browser, make test-torch
ABOUT_SOURCE = {
    "docs",
    "test_exact.py",
    "test_theorem_study.py",
    "test_renewing.py",
    "test_prose.py",
}  # read pages, benchmarks or sources when they are imported


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = {part for arg in config.args for part in Path(arg.split("::")[0]).parts}
    left_out = BY_NAME - asked if IS_CHECKOUT else ABOUT_SOURCE | (BY_NAME - asked)
    return True if collection_path.name in left_out else None


def pytest_report_header() -> list[str]:
    return [] if IS_CHECKOUT else [f"not collected without the source: {', '.join(sorted(ABOUT_SOURCE))}"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    for item in items:
        if _file(item) in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("source_tree") and not IS_CHECKOUT:
            item.add_marker(pytest.mark.skip(reason="reads files that the installed package does not have"))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the imported libraries, and come seldom where many objects are made."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


def _turn(item: pytest.Item) -> int:
    return SLOW.index(_file(item)) if _file(item) in SLOW else len(SLOW)


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Compile before the first test: tests look at what commands say on stderr."""
    ensure_compiled()
