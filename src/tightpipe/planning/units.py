"""Amounts in model files: bytes with a unit such as ``80 GB``, whole ticks, and exact decimal numbers."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from ..core.errors import InputError
from ..core.integers import LARGEST, check_int, plain

BYTES: dict[str, int] = {
    **{name: 1000**power for power, name in enumerate(("kB", "MB", "GB", "TB"), 1)},
    **{name: 1024**power for power, name in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
}
"""Bytes of each unit: the first four are decimal, the last four binary."""
AMOUNT = re.compile(r"([+-]?\d{1,15}(?:\.\d{1,15})?)\s*([A-Za-z]+)", re.ASCII)
"""The syntax of a decimal number with a unit; the two groups are the number and the unit."""


def parse_bytes(key: str, value: Any, low: int = 0) -> int:
    """Return an amount of memory in bytes, from an integer or from a text such as ``74.5 GiB``.

    A text is a decimal number and one of the units of `BYTES`; fractions of a byte are cut off.

    Raises
    ------
    InputError
        If the value is neither, has another unit, is below `low` or too large; the message names `key`.
    """
    if not isinstance(value, str):
        return check_int(key, value, low)
    found = AMOUNT.fullmatch(value.strip())
    if found is None:
        rule = f"must be bytes, or a text of a number and one of {', '.join(BYTES)}, e.g. '80 GB'"
        raise InputError(rule, key=key, value=value)
    number, unit = found.groups()
    if unit not in BYTES:
        raise InputError(f"unknown unit {unit}; known are {', '.join(BYTES)}", key=key, value=value)
    amount = math.floor(Fraction(number) * BYTES[unit])
    if not low <= amount <= LARGEST:
        raise InputError(f"must be from {low} to {LARGEST} bytes", key=key, value=value)
    return amount


def check_ticks(key: str, value: Any) -> int:
    """Return `value`, a number of ticks, if it is an integer from 0 on.

    Raises
    ------
    InputError
        If the value is no such integer; for a finite float, the message gives the nearest integer.
    """
    value = plain(value)
    if isinstance(value, float) and math.isfinite(value):
        raise InputError(f"must be whole ticks; round it to {round(value)}", key=key, value=value)
    return check_int(key, value, 0)


def exact(key: str, value: Any) -> Fraction:
    """Return a decimal number from 0 on as the fraction that its digits say, e.g. 12/5 for 2.4.

    Raises
    ------
    InputError
        If the value is no finite number, is negative or exceeds `LARGEST`; the message names `key`.
    """
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("must be a number", key=key, value=value)
    if not 0 <= value <= LARGEST:  # NaN is not in this range either
        raise InputError(f"must be from 0 to {LARGEST}", key=key, value=value)
    return Fraction(repr(value))


def exact_positive(key: str, value: Any) -> Fraction:
    """Return a decimal number above 0 as the fraction that its digits say.

    Raises
    ------
    InputError
        If the value is no finite number above 0 and up to `LARGEST`; the message names `key`.
    """
    number = exact(key, value)
    if number == 0:
        raise InputError("must be above 0", key=key, value=value)
    return number


def decimal(number: Fraction) -> int | float:
    """Return a fraction in the form for a file: an integer if it is whole, else the nearest float."""
    return int(number) if number.denominator == 1 else float(number)
