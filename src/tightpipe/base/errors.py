"""One exception class for each thing that can go wrong, checks of integers, and text for terminals.

Costs often come from profiles that numpy or pandas has read. So integers and arrays of these libraries are
accepted wherever an integer or a sequence of integers is expected. They are stored as Python's own integers,
so that an instance compares, hashes and is written to a file in the same way wherever its numbers came from.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any


def printable(text: str, keep: str = "") -> str:
    r"""Return a text with a backslash escape for each character that cannot be shown.

    A file may be called almost anything. Escaped are line breaks, which would make two lines of one; control
    characters and the sequences by which a terminal is coloured or cleared; characters without width; and the
    bytes of a name that is not valid in the encoding of the file system, which Python holds as surrogates.

    The result can be encoded as UTF-8, e.g. ``a\nb.json`` with a backslash in place of a line break. The
    characters `keep` stay although they cannot be shown, e.g. line breaks of a table.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


_UNSET: Any = object()


class InputError(ValueError):
    """Input that breaks a rule; the message names file, key, value and what would be right.

    Parameters
    ----------
    rule
        The rule that the input breaks, which says what would be right.
    key
        Dotted path of the offending entry, e.g. ``memory.limit[2]``.
    value
        The offending value; left out where there is none, e.g. for a missing key.
    source
        Path of the file that the value came from; empty if it came from no file.
    """

    def __init__(self, rule: str, *, key: str = "", value: Any = _UNSET, source: str = "") -> None:
        self.rule, self.key, self.value, self.source = rule, key, value, source
        super().__init__(self._text())

    def _text(self) -> str:
        entry = self.key
        if self.value is not _UNSET:
            shown = repr(self.value)
            shown = shown if len(shown) <= 60 else f"{shown[:28]}...{shown[-28:]}"
            entry = f"{self.key} = {shown}" if self.key else shown
        rule = " ".join(self.rule.splitlines())  # one line, even if it quotes another program
        return ": ".join(part for part in (printable(self.source), printable(entry), rule) if part)

    def at(self, source: str) -> InputError:
        """Return the same error with `source` as the file that the value came from."""
        return InputError(self.rule, key=self.key, value=self.value, source=source)


@contextmanager
def about_file(path: str | Path) -> Iterator[None]:
    """Let an `InputError` that the block raises name this file, unless it names one already."""
    try:
        yield
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def named(key: object) -> str:
    """Return a key of a file as errors name it: in quotes where it is empty or would run into the text."""
    text = str(key)
    return text if text and text.isprintable() and not set(text) & set(" =:\"'") else json.dumps(text)


@contextmanager
def about_entry(where: str) -> Iterator[None]:
    """Let the key of an `InputError` that the block raises be one of the table `where`."""
    try:
        yield
    except InputError as error:
        raise InputError(error.rule, key=f"{where}.{error.key}".rstrip("."), value=error.value) from None


class StandardOutputError(InputError):
    """Standard output does not take what a command prints, e.g. because the disk is full.

    Its attribute `reader_left` says whether standard output is a pipe whose reader wants no more, as that of
    ``| head -1``.
    """

    def __init__(self, error: OSError) -> None:
        self.reader_left = error.errno == errno.EPIPE
        super().__init__(f"cannot be written: {error.strerror or error}", source="standard output")


class NegativeError(Exception):
    """The answer is no, or nothing was found; a command that ends so has exit status 1."""


class InfeasibleError(NegativeError):
    """The instance has no schedule at all; the message says why and which limit would be large enough."""


class NoScheduleError(NegativeError):
    """A method found no schedule although the instance may have one; the message says why."""


class DeadlockError(NegativeError):
    """Operations of an order, or devices that run a program, wait for each other in a circle.

    The message names the members of the circle. If an operation waits for another one that no device runs,
    the message may name these two operations instead.
    """


class ContradictionError(NegativeError):
    """A lower bound is above the cost of a valid schedule: tightpipe or a solver that it trusts is wrong."""


class StoppedError(NegativeError):
    """Work could not go on, e.g. because the disk is full; the parts that were finished are kept."""


LARGEST = 10**12
"""Largest absolute value of one entry. Instances are small, so every sum of such entries fits 64 bits."""


def plain(value: Any) -> Any:
    """Convert a number or array of numpy or pandas to Python's own types; return other values unchanged."""
    return value.tolist() if hasattr(value, "tolist") else value


def store_plain(data: Any) -> None:
    """Convert the fields of a frozen dataclass by `plain`, in place.

    The ``__post_init__`` of a dataclass calls this function. Fields that the constructor does not take stay
    as they are.
    """
    for field in fields(data):
        if field.init:
            object.__setattr__(data, field.name, plain(getattr(data, field.name)))


def is_list(value: Any) -> bool:
    """Return whether the value is a sequence of entries and not a text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def check_int(key: str, value: Any, low: int | None = None, high: int | None = LARGEST) -> int:
    """Return `value` as an int if it is an integer from `low` to `high`.

    If `low` is None, the value may be as small as ``-high``. If `high` is None, there is no upper limit.

    Raises
    ------
    InputError
        If `value` is no integer or out of range; the message names `key`, the value and the limit it breaks.
    """
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError("must be an integer", key=key, value=value)
    if low is not None and value < low:
        raise InputError(f"must be at least {low}", key=key, value=value)
    if high is not None and value > high:
        raise InputError(f"must be at most {high}", key=key, value=value)
    if high is not None and value < -high:
        raise InputError(f"must be at least {-high}", key=key, value=value)
    return value


def check_flag(key: str, value: Any) -> bool:
    """Return `value` if it is true or false, else raise an InputError that names `key`."""
    if not isinstance(value, bool):
        raise InputError("must be true or false", key=key, value=value)
    return value


def check_number(key: str, value: Any, low: float, high: float, *, above: bool = False) -> float:
    """Return `value` as a float if it is a number from `low` to `high`, and above `low` if `above`."""
    value = plain(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high or (above and value == low):  # NaN is not in any range
        interval = f"above {low} and at most {high}" if above else f"from {low} to {high}"
        raise InputError(f"must be a number {interval}", key=key, value=value)
    return float(value)


def check_text(key: str, value: Any) -> str:
    """Return `value` if it is a text."""
    if not isinstance(value, str):
        raise InputError("must be a text", key=key, value=value)
    return value


def check_choice(key: str, value: Any, *known: str) -> str:
    """Return `value` if it is one of the texts `known`."""
    if value not in known:
        raise InputError(f"must be one of {', '.join(known)}", key=key, value=value)
    return str(value)


def per_item(key: str, value: Any, count: int, noun: str, low: int | None) -> tuple[int, ...]:
    """Return `count` integers, one per `noun` ("stage", "device"), from one number or from a sequence.

    One number is repeated; a sequence must have `count` entries. Each is at least `low`, unless that is None.

    Raises
    ------
    InputError
        If `value` is neither a number nor a sequence, has another length, or has an entry that is no integer
        or out of range.
    """
    if not is_list(value):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"must be an integer or one integer per {noun}", key=key, value=value)
        return (check_int(key, value, low),) * count
    if len(value) != count:
        rule = f"has {len(value)} entries, must have one per {noun}: {count}"
        raise InputError(rule, key=key, value=list(value))
    if (
        set(map(type, value)) == {int}
        and max(value) <= LARGEST
        and min(value) >= (-LARGEST if low is None else low)
    ):
        return tuple(value)  # which is all that there mostly is, and is found out faster than one by one
    return tuple(check_int(f"{key}[{i}]", v, low) for i, v in enumerate(value))
