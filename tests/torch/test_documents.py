"""The tutorial, whose last steps train in PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.documents import ROOT, run_document


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    run_document(ROOT / "docs/tutorial.md")
