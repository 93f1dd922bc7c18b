"""A hash of source files that is the same for the same code, however the code is formatted and explained.

Comments, docstrings and line breaks do not change the hash of a Python file, because the hash is that of its
syntax tree. The tree is written down without the fields that are empty, and so the hash does not change with
the version of Python either: later versions have added fields for syntax that the sources do not use.
"""

from __future__ import annotations

import ast
import hashlib
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path


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
