"""Traces are recognised by their content, and read by the reader of their format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import InputError
from ..core.files import STANDARD
from ..runtime.trace_events import opened
from .kineto import read_kineto
from .megatron_timers import MARK
from .ranges import Recording, Wanted

_SQLITE = b"SQLite format 3\0"  # the first bytes of an SQLite file
_SUFFIXES = (".json", ".json.gz", ".sqlite")
_PIECE = 1 << 20  # characters of a log that are searched for timers at a time
_TRACE = re.compile(r"\s*(?:\{|\[\s*[\[{\]])|SQLite format 3")
"""How traces begin; a log may begin with ``[`` too, as in ``[rank0]:``."""


def read_recordings(paths: Sequence[str | Path], wanted: Wanted) -> list[Recording]:
    """Return the recordings of all processes from traces of Kineto (JSON) or Nsight (SQLite), also mixed.

    Raises
    ------
    InputError
        If a trace cannot be read, is damaged or is named twice, or if there are no recordings.
    """
    recordings: list[Recording] = []
    seen: set[Path] = set()
    for path in files_of(paths):
        if path != STANDARD and (real := Path(path).resolve()) in seen:
            raise InputError("is named twice; give one trace of each rank", source=str(real))
        seen.add(Path(path).resolve())
        if _begins_with(path, _SQLITE):
            from .nsight import read_nsight  # imported here because SQLite takes long to load

            recordings += read_nsight(path, wanted)
        else:
            recordings.append(read_kineto(path, wanted))
    if not recordings:
        raise InputError("no range says which operation ran", source=", ".join(map(str, paths)))
    return recordings


def files_of(paths: Sequence[str | Path]) -> list[str | Path]:
    """Return the files that are traces: a folder stands for all traces in it, sorted by name.

    Raises
    ------
    InputError
        If a folder has no traces.
    """
    files: list[str | Path] = []
    for path in paths:
        if path == STANDARD or not Path(path).is_dir():
            files.append(path)
            continue
        inside = sorted(file for file in Path(path).iterdir() if file.name.endswith(_SUFFIXES))
        if not inside:
            raise InputError(f"the folder has no traces ({', '.join(_SUFFIXES)})", source=str(path))
        files += inside
    return files


def is_timer_log(path: str | Path) -> bool:
    """Return whether a file is a log with timers of Megatron-LM, wherever in the log they begin.

    Files that begin like a trace are no logs. No error is raised if the file cannot be read, because its
    reader raises one that says what is wrong.
    """
    try:
        if not Path(path).is_file():
            return False
        with opened(path) as log:
            piece = log.read(_PIECE)
            if _TRACE.match(piece):
                return False
            while MARK not in piece:
                more = log.read(_PIECE)
                if not more:
                    return False
                piece = piece[-len(MARK) :] + more
            return True
    except (OSError, InputError):
        return False


def _begins_with(path: str | Path, content: bytes) -> bool:
    """Return whether a file begins with these bytes; False if it cannot be read, which its reader reports."""
    try:
        if not Path(path).is_file():
            return False
        with open(path, "rb") as stream:
            return stream.read(len(content)) == content
    except OSError:
        return False
