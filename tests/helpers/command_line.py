"""The command line called in the tests' own process."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tightpipe.cli import main

SMALL: dict[str, Any] = {
    "devices": 2,
    "microbatches": 4,
    "placement": "v",
    "forward": 10,
    "backward": 12,
    "weight": 8,
    "comm": 1,
    "memory": {"forward": 2, "backward": -1, "weight": -1, "limit": 8},
    "objective": "device_span",
}


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def call(*arguments: str | Path, cwd: Path | None = None) -> Done:
    """Run the command line in this process: the same code as the installed command, without its start-up."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", ["tightpipe", *map(str, arguments)]),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    return Done(int(stop.value.code or 0), out.getvalue(), err.getvalue())


def write(folder: Path, data: Any, name: str = "instance.json") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path
