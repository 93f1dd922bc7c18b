from __future__ import annotations

import subprocess
import sys

import pytest

from tightpipe import drawing


def test_drawing_text_does_not_load_matplotlib() -> None:
    code = "import sys, tightpipe.drawing; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="draw_nothing"):
        drawing.draw_nothing  # noqa: B018
