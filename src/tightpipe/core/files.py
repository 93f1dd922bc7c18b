"""Reading and writing files: whole or not at all, through links, and from and to pipes.

What is written to a regular file goes to a temporary file beside it, which then takes its name: a reader
sees the old content or the new, never half, and a write that fails leaves the old. A symbolic link stays a
link, and it is the file that it leads to which is replaced. Anything else that a path may lead to, a named
pipe, a device or the pipe of a shell's process substitution, has no content to keep and is written to as a
stream.

The name ``-`` stands for standard input where a file is read, and for standard output where one is written; a
file of that name is called ``./-``.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import BinaryIO

from .errors import InputError

STANDARD = "-"
"""The name of standard input and standard output."""


def read_text(path: str | Path) -> str:
    """Read a UTF-8 text; every kind of line end becomes a newline.

    Raises
    ------
    InputError
        If it cannot be read, with the reason, or is not text.
    """
    try:
        return TextIOWrapper(BytesIO(read_bytes(path)), encoding="utf-8").read()
    except UnicodeDecodeError:
        raise InputError("not a text file (UTF-8)", source=str(path)) from None


def read_bytes(path: str | Path) -> bytes:
    """Read a file.

    Raises
    ------
    InputError
        If it cannot be read, with the reason.
    """
    try:
        return _standard_input() if path == STANDARD else Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError("no such file", source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


def write_text(path: str | Path, text: str) -> None:
    """Write a text as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file: a regular one in one step, with the permissions that it had, anything else as a stream.

    Raises
    ------
    InputError
        If it cannot be written, with the reason; a regular file is then as it was before.
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


def check_writable(path: str | Path) -> None:
    """Raise before the work rather than after it, where a file cannot be written.

    Raises
    ------
    InputError
        If there is no such folder, if it or the file is read-only, or if the path is that of a folder.
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
    """Whether a path is a name of standard output.

    Its device is another name of it. Opened anew, where standard output leads to a regular file, it would
    have a position of its own, so that what is printed later would overwrite what was written.
    """
    return str(path) == "/dev/stdout" or path == STANDARD


def _mode(path: str | Path) -> int | None:
    """Return the mode of what a path leads to, None where there is nothing yet."""
    try:
        return os.stat(Path(path)).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_stream(path: str | Path) -> bool:
    mode = _mode(path)
    return mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _replace(target: Path, content: bytes) -> None:
    partial = target.with_name(f"{target.name}.{os.getpid()}.tmp")  # two writers do not meet in it
    try:
        partial.write_bytes(content)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _write_standard_output(content: bytes) -> None:
    """Write past Python's buffer, which would try again at exit what a broken pipe has refused."""
    if sys.stdout is None:
        raise OSError(0, "standard output is closed")
    sys.stdout.flush()
    with open(sys.stdout.fileno(), "wb", closefd=False) as stream:
        stream.write(content)


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise OSError(0, "standard input is closed")
    return _whole(sys.stdin.buffer)


@lru_cache(1)
def _whole(stream: BinaryIO) -> bytes:
    """Read a stream to its end, once: a command that looks at a file twice meets the same content."""
    return stream.read()


@contextmanager
def _explained(path: str | Path) -> Iterator[None]:
    """Turn what the system says into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", source=str(path)) from None
