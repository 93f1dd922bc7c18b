"""The screenshot of the documentation can be taken anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from helpers.documents import ROOT
from matplotlib.image import imread


def test_the_script_takes_the_screenshot_of_the_report(tmp_path: Path) -> None:
    script = ROOT / "docs/pictures/draw.py"
    subprocess.run([sys.executable, script, "--into", tmp_path, "report.png"], check=True)
    drawn, shown = imread(tmp_path / "report.png"), imread(script.parent / "report.png")
    assert drawn.shape == shown.shape
    assert drawn.std() > 0.05  # not an empty page
