"""The engine is the code that finds schedules and proves bounds; results contain its name.

A version alone does not say which code made a result, because between two releases the code changes often. So
the name of an engine has the version and a hash of the engine's sources, the files of the subpackages in
`ROOMS`. Solves and bounds with the same name come from the same code. Plans come from further code, which
changes more often, and so have the name of the planner, whose hash has the files of `PLANNING` too. The hash
is that of the files which this process runs, so an installed package and a checkout of the same code have the
same name, and an edited source has a new one. The user's cache (`cache_roots`) keeps the hash, because
parsing the sources takes long.

Comments, docstrings and line breaks do not change the hash of a Python file, because the hash is that of its
syntax tree. The tree is written down without the fields that are empty, and so the hash does not change with
the version of Python either: later versions have added fields for syntax that the sources do not use.
"""

from __future__ import annotations

import ast
import hashlib
import os
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import platformdirs

from .files import write_text


def source_digest(files: Iterable[Path], folder: Path) -> str:
    """Return a hash of the code in some files below `folder`, and of their paths, in hexadecimal digits."""
    found = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        found.update(f"\0{path.relative_to(folder).as_posix()}\0".encode())
        found.update("\0".join(_code(path.suffix, content)).encode())
    return found.hexdigest()


def _code(suffix: str, content: bytes) -> Iterator[str]:
    """Yield what the content of a file says, without what only readers see."""
    if suffix == ".py":
        yield from _written(ast.parse(content))
    else:
        yield repr(tomllib.loads(content.decode()))


def _written(part: object) -> Iterator[str]:
    """Yield the words that describe a part of a syntax tree."""
    if isinstance(part, ast.AST):
        yield type(part).__name__
        if isinstance(part, ast.JoinedStr):  # an f-string, where Python 3.12 has put in texts without letters
            part.values = [value for value in part.values if getattr(value, "value", None) != ""]
        for field, value in ast.iter_fields(part):
            if value is not None and value != []:
                yield field
                yield from _written(value)
    elif isinstance(part, list):
        yield "["
        for each in part:
            if not _is_text(each):
                yield from _written(each)
        yield "]"
    else:
        yield repr(part)


def _is_text(statement: object) -> bool:
    """Return whether a statement is only a text: a docstring, or the text below an attribute."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


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


ROOMS = ("base", "heuristics", "kernels", "model", "noise", "params", "registry", "settings", "solver")
"""Subpackages whose files decide what a method finds and what a bound proves."""
PLANNING = ("explain", "export", "planning", "steps")
"""Subpackages whose files decide which plan is found and what its bound is, beside those of `ROOMS`."""

_PACKAGE = Path(__file__).parents[1]
_SUFFIXES = (".py", ".toml")
_DIGITS = 8  # of the hash


@cache
def engine_version() -> str:
    """Return the name of the engine that this process runs, e.g. ``0.2.0+5f2d80c1``."""
    return name_engine(version("tightpipe"), _PACKAGE)


@cache
def planner_version() -> str:
    """Return the name of the code that finds plans in this process; it looks like that of an engine."""
    return name_engine(version("tightpipe"), _PACKAGE, (*ROOMS, *PLANNING), "planner")


def name_engine(release: str, package: Path, rooms: tuple[str, ...] = ROOMS, what: str = "engine") -> str:
    """Return the name of the engine whose rooms lie in the folder `package`, for a version of tightpipe."""
    files = list(_sources(package, rooms))
    return f"{release}+{_remembered(files, package, what)[:_DIGITS]}"


def _sources(package: Path, rooms: tuple[str, ...]) -> Iterator[Path]:
    for room in rooms:
        yield from sorted(path for path in (package / room).rglob("*") if path.suffix in _SUFFIXES)


def _remembered(files: list[Path], package: Path, what: str) -> str:
    """Return the hash of the code in some files, which `what`.txt in the user's cache keeps for these bytes.

    To parse the sources takes most of a second; to read them takes a hundredth of it.
    """
    read = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        read.update(f"\0{path.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        read.update(content)
    key = read.hexdigest()
    for root in cache_roots():
        with suppress(OSError, ValueError):  # a file that cannot be written, or is damaged
            root.mkdir(parents=True, exist_ok=True)
            kept = root / f"{what}.txt"
            known = kept.read_text().split() if kept.exists() else []
            if len(known) == 2 and known[0] == key:
                return known[1]
            found = source_digest(files, package)
            write_text(kept, f"{key} {found}\n")
            return found
    return source_digest(files, package)
