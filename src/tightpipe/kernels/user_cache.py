"""The folders in which tightpipe may keep what it has computed once for a user, such as machine code."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import platformdirs


def cache_roots() -> Iterator[Path]:
    """Yield the folders that may serve as the user's cache, the best first; the first may not be writable."""
    told = os.environ.get("NUMBA_CACHE_DIR")
    yield Path(told) / "tightpipe" if told else platformdirs.user_cache_path("tightpipe")
    shared = Path(tempfile.gettempdir()) / f"tightpipe-{_user()}"
    with suppress(OSError):
        shared.mkdir(mode=0o700, exist_ok=True)
        if shared.stat().st_uid == _user():  # its machine code is run, so no other user may own it
            yield shared


def _user() -> int:
    """Return the user's number, or 0 if the system has no such numbers: `st_uid` of a file is then 0 too."""
    return os.getuid() if hasattr(os, "getuid") else 0
