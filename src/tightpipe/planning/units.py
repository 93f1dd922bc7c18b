"""Amounts in model files: bytes with a unit such as ``80 GB``, ticks and their length, exact decimals."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..base.errors import LARGEST, InputError, check_int, plain

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
    """Return `value`, a number of ticks, if it is an integer from 0 on."""
    value = plain(value)
    if isinstance(value, float) and math.isfinite(value):
        raise InputError(f"must be whole ticks; round it to {round(value)}", key=key, value=value)
    return check_int(key, value, 0)


def exact(key: str, value: Any) -> Fraction:
    """Return a decimal number from 0 on as the fraction that its digits say, e.g. 12/5 for 2.4."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("must be a number", key=key, value=value)
    if not 0 <= value <= LARGEST:  # NaN is not in this range either
        raise InputError(f"must be from 0 to {LARGEST}", key=key, value=value)
    return Fraction(repr(value))


def exact_positive(key: str, value: Any) -> Fraction:
    """Return a decimal number above 0 as the fraction that its digits say."""
    number = exact(key, value)
    if number == 0:
        raise InputError("must be above 0", key=key, value=value)
    return number


def decimal(number: Fraction) -> int | float:
    """Return a fraction in the form for a file: an integer if it is whole, else the nearest float."""
    return int(number) if number.denominator == 1 else float(number)


SECONDS: dict[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
}
"""Seconds of each unit of time."""
_DIGITS = 15  # most digits behind the decimal point


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that a tick takes."""

    number: Fraction = Fraction(1)  #: how many units a tick takes, above 0
    unit: str = "us"  #: name of the unit, one of `SECONDS`. Times are shown in this unit

    def __str__(self) -> str:
        whole, part = divmod(int(self.number * 10**_DIGITS), 10**_DIGITS)
        return f"{whole}.{part:0{_DIGITS}d}".rstrip("0").rstrip(".") + f" {self.unit}"

    @property
    def seconds(self) -> Fraction:
        """Seconds of one tick."""
        return self.number * SECONDS[self.unit]

    def time_of(self, ticks: int | None) -> int | float | None:
        """Return the time of a number of ticks in `unit`; None for None."""
        return None if ticks is None else decimal(ticks * self.number)


USUAL_TICK = Tick()
"""The tick of a model file that does not say otherwise, and of the model files that are made here."""


def parse_tick(key: str, value: Any) -> Tick:
    """Return the tick that a text such as ``0.5 ms`` describes: a decimal above 0 and a unit of time."""
    found = AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or Fraction(found[1]) <= 0 or found[2] not in SECONDS:
        rule = f"must be a text of a number above 0 and one of {', '.join(SECONDS)}, e.g. '1 us'"
        raise InputError(rule, key=key, value=value)
    return Tick(Fraction(found[1]), found[2])
