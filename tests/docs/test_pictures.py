"""The pictures of the documentation: each is shown, small, and what its script draws today."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.documents import ROOT
from matplotlib.testing.compare import compare_images

PICTURES = ROOT / "docs/pictures"
SCRIPT = PICTURES / "draw.py"
DRAWN = (
    "gantt.png",
    "measured.png",
    "replay.png",
    "splitting.png",
    "two-times.png",
)  # report.png and demo.png are screenshots: tests/browser takes the first, and the second needs make demo
LARGEST = 300_000  # bytes
TOLERANCE = 4.0  # root mean square of 0..255, for text that another version renders otherwise


def shown() -> set[Path]:
    """The pictures that pages of the documentation refer to."""
    return {
        (page.parent / target).resolve()
        for page in (ROOT / "docs").rglob("*.md")
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+\.png)\)", page.read_text())
    }


def test_every_picture_that_is_shown_is_there_and_every_one_that_is_there_is_shown() -> None:
    assert all(path.is_file() for path in shown())
    assert {path for path in shown() if path.parent == PICTURES} == set(PICTURES.glob("*.png"))


def test_every_picture_says_in_words_what_it_shows() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for text in re.findall(r"!\[([^\]]*)\]", page.read_text()):
            assert len(text.split()) > 3, f"{page.name}: {text}"


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.png")), ids=lambda path: path.name)
def test_a_picture_is_small(path: Path) -> None:
    assert path.stat().st_size < LARGEST


@pytest.mark.slow
def test_the_script_draws_the_pictures_as_they_are(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, "--into", tmp_path, *DRAWN], check=True)
    for name in DRAWN:
        assert compare_images(str(PICTURES / name), str(tmp_path / name), TOLERANCE) is None


def test_the_script_refuses_a_picture_that_it_does_not_know(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--into", tmp_path, "none.png"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert (
        "no picture is called none.png: there are demo.png, gantt.png, measured.png, replay.png, report.png, splitting.png, two-times.png"
        in done.stderr
    )
    assert list(tmp_path.iterdir()) == []
