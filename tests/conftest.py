"""Hypothesis profile of all tests, which of them are slow, and which run only in certain places.

The slow files come first and begin with the slowest, so that no process is left with a long test at the end.
"""

import gc
import os
import signal
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from slow_files import SLOW

from tightpipe.kernels.compiled import ensure_compiled

# compiled loops make the first example slow, so no deadlines; CI draws the same examples every time
settings.register_profile("all cases", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("tightpipe", settings.get_profile("all cases"), max_examples=40)

# a shell starts what runs in its background deaf to Ctrl-C, and tests send it to processes that they start
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
IS_CHECKOUT = (TESTS.parent / "src/tightpipe").is_dir()  # a copy of the tests has no source beside it
BY_NAME = {"browser", "torch"}  # need a browser or PyTorch: make test-browser, make test-torch
ABOUT_SOURCE = {
    "docs",
    "test_exact.py",
    "test_growing_table.py",
    "test_parts.py",
    "test_scale.py",
    "test_predictions.py",
    "test_tuning_study.py",
    "test_theorem_study.py",
    "test_renewing.py",
    "test_prose.py",
}  # read pages, benchmarks or sources when they are imported


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = {part for arg in config.args for part in Path(arg.split("::")[0]).parts}
    left_out = BY_NAME - asked if IS_CHECKOUT else ABOUT_SOURCE | (BY_NAME - asked)
    return True if collection_path.name in left_out else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-cases", action="store_true", help="run all cases of sampled tests, as CI does")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("all cases" if config.option.all_cases else "tightpipe")


def pytest_report_header() -> list[str]:
    return [] if IS_CHECKOUT else [f"not collected without the source: {', '.join(sorted(ABOUT_SOURCE))}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.option.all_cases:
        _sample(config, items)
    items.sort(key=_turn)
    for item in items:
        if _file(item.path) in SLOW:
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("source_tree") and not IS_CHECKOUT:
            item.add_marker(pytest.mark.skip(reason="reads files that the installed package does not have"))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the imported libraries, and come seldom where many objects are made."""
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)


def _sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out all but every n-th case of each test that is marked so; pytest counts them as deselected."""
    seen: Counter[str] = Counter()
    left_out = set()
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker is not None:
            test = item.nodeid.partition("[")[0]
            if seen[test] % marker.args[0]:
                left_out.add(item)
            seen[test] += 1
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@cache  # thousands of items are of a few files
def _file(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


def _turn(item: pytest.Item) -> int:
    file = _file(item.path)
    return SLOW.index(file) if file in SLOW else len(SLOW)


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Compile before the first test: tests look at what commands say on stderr."""
    ensure_compiled()
