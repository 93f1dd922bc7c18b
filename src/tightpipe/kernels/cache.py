"""Where compiled loops are kept: a folder of the user's for each state of the sources and each machine.

Numba's own cache looks at the file of a function alone, so that an edit of a function that another file
calls, and that has become part of the caller's machine code, would never reach the caller. Here the folder's
name is a digest of everything that machine code is made from.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import llvmlite
import numba
import platformdirs
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from numba.core.registry import cpu_target

from .compiled import LOADED_AT

_PACKAGE = Path(__file__).parent.parent
_HOLDS_LOOPS = re.compile(rb"^from \S*\bcompiled import", re.MULTILINE)
_SHARED = (
    "kernels/compiled.py",
    "core/operation.py",
)  # what loops read besides each other: options, numbers of the kinds
_DAMAGED = EOFError, UnpicklingError  # what a file gives that a dying machine has left cut short
_KEPT = 3  # folders, this one included: several versions may be in use side by side


def dispatcher_of(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return numba's dispatcher of a function, with the cache of this file."""
    dispatcher = numba.njit(**options)(function)
    if not is_disabled():
        dispatcher._cache = _Cache(function)
    return dispatcher


def is_disabled() -> bool:
    """Whether the variable NUMBA_DISABLE_JIT asks for plain Python."""
    return bool(config.DISABLE_JIT)


def sources(package: Path = _PACKAGE) -> list[Path]:
    """Return the files that compiled loops are made from, in a fixed order."""
    return [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).as_posix() in _SHARED or _HOLDS_LOOPS.search(path.read_bytes())
    ]


@cache
def digest() -> str:
    """Return what tells this state of the sources, these versions and this processor from others."""
    versions = numba.__version__, llvmlite.__version__, platform.python_version()
    found = hashlib.sha256(repr((versions, cpu_target.target_context.codegen().magic_tuple())).encode())
    for path in sources():
        found.update(f"\0{path.relative_to(_PACKAGE).as_posix()}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


@cache
def cache_folder() -> Path:
    """Return the folder of this digest: one for this process alone where no other will do."""
    for root in () if _edited() else _roots():
        folder = root / f"loops-{digest()}"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
    own = tempfile.mkdtemp(prefix="tightpipe-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)


def _edited() -> bool:
    """Whether sources have changed since this process read them: the digest is not of what it runs."""
    return any(path.stat().st_mtime > LOADED_AT for path in sources())


def _roots() -> Iterator[Path]:
    if config.CACHE_DIR:  # the variable NUMBA_CACHE_DIR
        yield Path(config.CACHE_DIR) / "tightpipe"
    else:
        yield platformdirs.user_cache_path("tightpipe")
    shared = Path(tempfile.gettempdir()) / f"tightpipe-{_user()}"
    with suppress(OSError):
        shared.mkdir(mode=0o700, exist_ok=True)
        if shared.stat().st_uid == _user():  # what lies there is run: nobody else may have made it
            yield shared


def _user() -> int:
    """Return the number of the user: 0, as in `st_uid` of any file, where a system has no such numbers."""
    return os.getuid() if hasattr(os, "getuid") else 0


def remove_old_folders() -> None:
    """Remove the folders of earlier sources and versions but for those that were used last."""
    folders = sorted(cache_folder().parent.glob("loops-*"), key=_used, reverse=True)
    for folder in folders[_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def _used(folder: Path) -> float:
    with suppress(OSError):  # another process removes folders as well
        return folder.stat().st_mtime
    return 0.0


class _Locator(UserProvidedCacheLocator):
    """Says where the loops of a file are kept."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        super().__init__(function, file)
        self._cache_path = str(cache_folder() / function.__module__)  # wherever the package is installed

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)


class _Files(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  # as in the base class


class _Cache(FunctionCache):
    """Numba's cache of a function, in which a fault of the disk is no more than a miss."""

    _impl_class = _Files

    def load_overload(self, signature: Any, context: Any) -> Any:
        with suppress(OSError):
            try:
                return super().load_overload(signature, context)
            except _DAMAGED:
                self.flush()  # to be written anew
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        with suppress(OSError):
            super().save_overload(signature, result)

    def signatures(self) -> list[Any]:
        """Return the argument types for which the function lies in the cache."""
        with suppress(OSError, *_DAMAGED):
            return [signature for signature, *_ in self._cache_file._load_index()]
        return []
