"""Files are read and written whole or not at all; pipes and symbolic links work as well.

The new content of a regular file is written to a temporary file beside it, which then takes the name of the
old file. So a reader sees the old content or the new, never half of it, and a write that fails leaves the old
content. A symbolic link stays a link, and the file that it leads to is replaced. A named pipe, a device or
the pipe of a shell's process substitution has no content to keep, and is written to as a stream.

A text is compressed where the name of its file ends in ``.gz`` or ``.xz``; equal texts are written as equal
bytes.

The name ``-`` stands for standard input where a file is read, and for standard output where one is written; a
file of that name is called ``./-``.

Files of data are JSON or TOML, and those of this package say what kind they are.
"""

from __future__ import annotations

import csv
import errno
import gzip
import json
import lzma
import os
import shutil
import stat
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO

from .errors import InputError, StandardOutputError, about_file, named

STANDARD = "-"
"""The path that stands for standard input and standard output."""
_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".xz": lzma.compress,
}
_UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}


def read_text(path: str | Path) -> str:
    """Return the content of a UTF-8 text file, with a newline for every kind of line end.

    The suffixes ``.gz`` and ``.xz`` mean that it is compressed. A byte order mark at the begin is left out.
    Raise an InputError that names file and reason if it cannot be read, or is not text.
    """
    try:
        content = read_bytes(path)
        unpack = _UNPACK.get(Path(path).suffix, bytes)
        return TextIOWrapper(BytesIO(unpack(content)), encoding="utf-8-sig").read()
    except UnicodeDecodeError:
        raise InputError("not a text file (UTF-8)", source=str(path)) from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from None


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file; raise an InputError that says why if it cannot be read."""
    try:
        return _standard_input() if path == STANDARD else Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError("no such file", source=str(path)) from None
    except (OSError, ValueError) as error:  # the latter for a name with a null character
        raise InputError(f"cannot be read: {_why(error)}", source=str(path)) from None


def write_text(path: str | Path, text: str) -> None:
    """Write a text as UTF-8 like `write_bytes`; the suffixes ``.gz`` and ``.xz`` compress it."""
    content = text.encode("utf-8", "backslashreplace")  # a file's name may be no valid text
    write_bytes(path, _PACK.get(Path(path).suffix, bytes)(content))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file.

    A regular file is replaced in one step and keeps its permissions; a pipe or a device is written to as a
    stream. Raise an InputError if the file cannot be written; the message says why. A regular file is then as
    it was before. If standard output is meant, the error is a `StandardOutputError`.
    """
    check_writable(path)
    with _explained(path):
        if is_standard_output(path):
            _write_standard_output(content)
        elif _is_stream(path):
            with open(path, "wb") as stream:
                stream.write(content)
        else:
            _replace(Path(os.path.realpath(path)), content)


def make_folder(path: str | Path) -> Path:
    """Return the path of a folder, which is made if it is not there; raise an InputError if it cannot be."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be made: {_why(error)}", source=str(path)) from None
    return Path(path)


def check_writable(path: str | Path) -> None:
    """Raise an InputError if a file cannot be written, before work that would be lost.

    It cannot if the path is a folder, the folder that is to hold it does not exist, or either is read-only.
    """
    if is_standard_output(path):
        return
    with _explained(path):
        stream, there = _is_stream(path), _mode(path) is not None
    folder = Path(os.path.realpath(path)).parent
    if Path(path).is_dir():
        raise InputError("cannot be written: it is a folder", source=str(path))
    if not stream and not folder.is_dir():
        raise InputError("cannot be written: there is no such folder", source=str(path))
    if not stream and not os.access(folder, os.W_OK):
        raise InputError("cannot be written: the folder is read-only", source=str(path))
    if there and not os.access(path, os.W_OK):
        raise InputError("cannot be written: it is read-only", source=str(path))


def is_standard_output(path: str | Path) -> bool:
    """Return whether a path is ``-`` or ``/dev/stdout``, the two names of standard output.

    The device file must not be opened anew. If standard output is redirected to a regular file, the new
    handle would have its own position in that file, and later prints would overwrite what it wrote.
    """
    return str(path) == "/dev/stdout" or path == STANDARD


def _mode(path: str | Path) -> int | None:
    """Return the file mode (type and permissions) behind a path; None where no file is there yet."""
    try:
        return os.stat(Path(path)).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_stream(path: str | Path) -> bool:
    mode = _mode(path)
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _replace(target: Path, content: bytes) -> None:
    own = os.urandom(4).hex()  # threads of a process, and hosts that share the folder, use different names
    partial = target.with_name(f"{target.name}.{own}.tmp")
    try:
        partial.write_bytes(content)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _write_standard_output(content: bytes) -> None:
    """Write to standard output without Python's buffer.

    After a broken pipe, the buffer would still hold the content, and Python would write it again at exit.
    """
    if sys.stdout is None:
        raise StandardOutputError(OSError(errno.EBADF, "it is closed"))
    try:
        sys.stdout.flush()
        with open(sys.stdout.fileno(), "wb", closefd=False) as stream:
            stream.write(content)
    except OSError as error:
        raise StandardOutputError(error) from None


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise OSError(0, "standard input is closed")
    return _whole(sys.stdin.buffer)


@lru_cache(1)
def _whole(stream: BinaryIO) -> bytes:
    """Return all content of a stream, cached so that a command can read standard input twice."""
    return stream.read()


@contextmanager
def _explained(path: str | Path) -> Iterator[None]:
    """Turn the system's errors within the block into an `InputError`, whose one line names the file."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be written: {_why(error)}", source=str(path)) from None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def check_keys(data: Any, required: tuple[str, ...], optional: tuple[str, ...], where: str = "") -> None:
    """Raise an InputError unless a table, at `where` in its file, has all required and no unknown keys."""
    name = where.rstrip(".")
    if not isinstance(data, dict):
        raise InputError("must be a table of keys and values", key=name, value=data)
    for key in data:
        if key not in required + optional:
            rule = f"unknown key{f' in {name}' if name else ''}; known are {', '.join(required + optional)}"
            raise InputError(rule, key=named(key), value=data[key])
    for key in required:
        if key not in data:
            known = ", ".join(required)
            raise InputError(f"missing key '{key}'{f' in {name}' if name else ''}; required are {known}")


def read_data(path: str | Path) -> Any:
    """Return the content of a file, which is TOML if its name ends in ``.toml``, else JSON.

    Raise an InputError that says where the fault is if the file cannot be read, is empty or no valid TOML or
    JSON, has a key twice in a table, is nested too deeply or has an integer of too many digits.
    """
    return read_toml(path) if Path(path).suffix == ".toml" else read_json(path)


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file; raise what `read_data` raises."""
    return _parsed(path, "JSON", lambda text: json.loads(text, object_pairs_hook=_unique))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file; raise what `read_data` raises."""
    found: dict[str, Any] = _parsed(path, "TOML", _toml)
    return found


def _toml(text: str) -> dict[str, Any]:
    found = tomllib.loads(text)
    # this raises a ValueError for an integer that was read from other digits, but is too large to show
    repr(found)
    return found


def json_content(text: str) -> Any:
    """Return the content of a JSON text of another program; raise what `read_data` raises."""
    return _content(text, "JSON", json.loads)


def csv_rows(text: str) -> list[tuple[int, list[str]]]:
    """Return the cells of each row of a CSV text, and the number of the line in which the row ends, from 1.

    Raise an InputError that says where the fault is if the text is no CSV table.
    """
    reader = csv.reader(StringIO(text, newline=""))
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise InputError(f"not a CSV table: {error}", key=f"line {reader.line_num}") from None


def _parsed(path: str | Path, form: str, parse: Callable[[str], Any]) -> Any:
    with about_file(path):
        return _content(read_text(path), form, parse)


def _content(text: str, form: str, parse: Callable[[str], Any]) -> Any:
    if not text.strip():
        raise InputError(f"not {form}, or truncated: it is empty")
    try:
        return parse(text)
    except tomllib.TOMLDecodeError as error:
        rule = f"not TOML, or truncated: {error}"
    except json.JSONDecodeError as error:
        rule = f"not JSON, or truncated: {error.msg} at line {error.lineno} column {error.colno}"
    except RecursionError:
        rule = "nested too deeply"
    except InputError as error:
        rule = error.rule
    except ValueError:  # Python refuses to convert integers of more digits, from decimal ones or to them
        rule = f"holds an integer of more than {sys.get_int_max_str_digits()} digits"
    raise InputError(rule)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise InputError(f"key '{twice}' stands twice")
    return table


_KINDS = {
    "plan": {"problem", "schedule"},
    "program": {"instance", "nodes", "devices"},
    "schedule": {"instance", "devices"},
    "task list": {"nodes"},
    "model": {"layers", "cluster"},
    "instance": {"microbatches"},
}
"""The keys that every file of each kind has; a file is of the first kind of which it has all keys."""


def is_kind(data: Any, kind: str) -> bool:
    """Return whether a file's content is a table of the given kind, judged by its keys."""
    return isinstance(data, dict) and _kind_of(data) == kind


def check_kind(data: Any, wanted: str) -> None:
    """Raise an InputError if a file's content is no table, or is clearly of another kind than `wanted`.

    For example, a schedule is refused where an instance is wanted. A table of no known kind is accepted,
    because its reader names the keys that are missing.
    """
    if not isinstance(data, dict):
        raise InputError(f"must be a table of keys and values, as in {_article(wanted)} file", value=data)
    kind = _kind_of(data) or wanted
    if kind != wanted:
        raise InputError(f"is {_article(kind)} file, must be {_article(wanted)} file")


def _kind_of(data: dict[str, Any]) -> str | None:
    return next((kind for kind, keys in _KINDS.items() if keys <= set(data)), None)


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
