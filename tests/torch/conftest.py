"""These tests start processes that import PyTorch: they run where their folder is asked for by name."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = any("torch" in Path(arg.split("::")[0]).parts for arg in config.args)
    return None if asked else True
