"""All inner loops are compiled and loaded before any clock starts, so no time limit includes that time.

They are compiled once for each user and version of the package; the machine code is kept in a cache folder.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from ..kernels.compiled import LOOPS, Loop

_STAMP = "complete.json"  # names the loops that Python calls; it is written last, when the cache is complete
_loaded: set[str] = set()


def ensure_compiled() -> None:
    """Compile all inner loops unless the cache has them, and load the loops of the imported modules.

    Whatever is timed must come after this call. Of several processes that find the cache empty at the same
    time, the first compiles and the others wait for it.
    """
    for name in compile_ahead() - _loaded:
        loop = _loops().get(name)
        if loop is not None:
            _load(loop)
            _loaded.add(name)


def _loops() -> dict[str, Loop]:
    return {loop.name: loop for loop in LOOPS}


def _load(loop: Loop) -> None:
    for signature in loop.dispatcher._cache.signatures():
        loop.dispatcher.compile(signature)


@cache
def compile_ahead() -> frozenset[str]:
    """Compile all inner loops unless the cache has them, so that processes started later need not compile.

    Returns
    -------
    frozenset of str
        The names of the loops that are called from Python; empty where numba is told not to compile, or where
        the list of the names cannot be read.
    """
    from ..kernels.cache import cache_folder, is_disabled, remove_old_folders  # imported late: loads numba

    if is_disabled():
        return frozenset()
    folder = cache_folder()
    if not (folder / _STAMP).is_file():
        with _alone(folder):
            if not (folder / _STAMP).is_file():
                _compile(folder)
    with suppress(OSError):
        os.utime(folder)  # marks the folder as in use, so that no process removes it as an old one
    remove_old_folders()
    return _read(folder / _STAMP)


def _read(stamp: Path) -> frozenset[str]:
    with suppress(OSError, ValueError):
        return frozenset(json.loads(stamp.read_text()))
    return frozenset()


def _compile(folder: Path) -> None:
    from ..exercise import exercise  # imported late: loads every solver

    _say("compiling the inner loops, once: it takes one to three minutes")
    exercise()
    partial = folder / f"{_STAMP}.{os.getpid()}"
    with suppress(OSError):  # e.g. where the disk is full; the next process compiles again
        partial.write_text(json.dumps(sorted(loop.name for loop in LOOPS if loop.called)))
        partial.replace(folder / _STAMP)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process compiles into the folder, and keep others waiting until the block ends."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / "lock")
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _say("another process is compiling the inner loops: waiting for it")
            lock.acquire()
    except (OSError, NotImplementedError):  # on a file system without locks, compiling twice does no harm
        pass
    try:
        yield
    finally:
        lock.release()


def _say(text: str) -> None:
    print(f"tightpipe: {text}", file=sys.stderr, flush=True)
