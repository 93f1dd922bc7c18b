"""Checks of the integers that callers and files give, and their conversion to Python's own type.

Costs often come from profiles that numpy or pandas has read. So integers and arrays of these libraries are
accepted wherever an integer or a sequence of integers is expected. They are stored as Python's own integers,
so that an instance compares, hashes and is written to a file in the same way wherever its numbers came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from .errors import InputError

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
    return tuple(check_int(f"{key}[{i}]", v, low) for i, v in enumerate(value))
