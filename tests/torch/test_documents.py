"""The tutorial and a notebook, whose last steps train in PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.documents import ROOT, run_document, run_notebook


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    run_document(ROOT / "docs/tutorial.md")


def test_the_notebook_of_a_plan_trains_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run_notebook(ROOT / "examples/model_to_run.ipynb", torch=True) == 6
