"""What a clone of the repository weighs."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.source_tree
ROOT = Path(__file__).parents[1]
MOST_BYTES = 14_000_000
PICTURES = {".png", ".svg", ".pdf", ".jpg", ".gif"}


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    """The files that git tracks and that are there."""
    if not (ROOT / ".git").exists():
        pytest.skip("no repository")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_a_clone_is_small(tracked: list[Path]) -> None:
    assert sum(path.stat().st_size for path in tracked) < MOST_BYTES


def test_no_database_is_tracked(tracked: list[Path]) -> None:
    assert [path for path in tracked if path.read_bytes()[:15] == b"SQLite format 3"] == []


def test_a_picture_is_tracked_once_and_in_one_format(tracked: list[Path]) -> None:
    pictures = [path for path in tracked if path.suffix in PICTURES]
    assert {n for n, count in Counter(p.with_suffix("") for p in pictures).items() if count > 1} == set()
    assert len({path.read_bytes() for path in pictures}) == len(pictures)
