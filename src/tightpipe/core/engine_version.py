"""The engine is the code that finds schedules and proves bounds; results contain its name.

A version alone does not say which code made a result, because between two releases the code changes often.
So the name of an engine has the version and a hash of the engine's sources. Results with the same name come
from the same code. Comments, docstrings and formatting do not change the hash. It is that of the files which
this process runs, so an installed package and a checkout of the same code have the same name, and an edited
source has a new one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ..kernels.source_digest import source_digest
from ..kernels.user_cache import cache_roots

ROOMS = ("core", "heuristics", "kernels", "noise", "settings", "solver", "solving")
"""Subpackages whose files decide what a method finds and what a bound proves."""

_PACKAGE = Path(__file__).parents[1]
_SUFFIXES = (".py", ".toml")
_DIGITS = 8  # of the hash


@cache
def engine_version() -> str:
    """Return the name of the engine that this process runs, e.g. ``0.2.0+5f2d80c1``."""
    return name_engine(version("tightpipe"), _PACKAGE)


def name_engine(release: str, package: Path) -> str:
    """Return the name of the engine whose rooms lie in the folder `package`, for a version of tightpipe."""
    files = list(_sources(package))
    return f"{release}+{_remembered(files, package)[:_DIGITS]}"


def _sources(package: Path) -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted(path for path in (package / room).rglob("*") if path.suffix in _SUFFIXES)


def _remembered(files: list[Path], package: Path) -> str:
    """Return the hash of the code in some files, which the user's cache keeps for the same bytes.

    To parse the sources takes most of a second; to read them takes a hundredth of it.
    """
    read = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        read.update(f"\0{path.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        read.update(content)
    key = read.hexdigest()
    for root in cache_roots():
        with suppress(OSError):
            root.mkdir(parents=True, exist_ok=True)
            kept = root / "engine.txt"
            known = kept.read_text().split() if kept.exists() else []
            if len(known) == 2 and known[0] == key:
                return known[1]
            found = source_digest(files, package)
            partial = root / f"engine.txt.{os.getpid()}"
            partial.write_text(f"{key} {found}\n")
            partial.replace(kept)
            return found
    return source_digest(files, package)
