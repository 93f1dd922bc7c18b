"""Problems as plain data until tightpipe has their own files."""

from __future__ import annotations

import base64
import pickle
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest


@pytest.fixture(autouse=True)
def _problem_file(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("tightpipe.planning.problem_file") is None:
        stand_in = SimpleNamespace(
            problem_to_dict=lambda problem: {"pickled": base64.b64encode(pickle.dumps(problem)).decode()},
            problem_from_dict=lambda data: pickle.loads(base64.b64decode(data["pickled"])),
        )
        monkeypatch.setitem(sys.modules, "tightpipe.planning.problem_file", stand_in)
