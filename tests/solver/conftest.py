"""What tests of solvers share."""

from __future__ import annotations

from importlib import import_module

import pytest

from tightpipe.solver.bounds.formulas import work_bound


@pytest.fixture
def from_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches for bounds begin at the largest work, not at a formula that may leave them nothing to do."""
    module = import_module("tightpipe.solver.bounds.destructive")
    monkeypatch.setattr(module, "best_bound", work_bound)
