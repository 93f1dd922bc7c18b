"""The unit of a model's times: how long a tick is, e.g. ``1 us`` or ``0.5 ms``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..core.errors import InputError
from .units import AMOUNT, decimal

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
    """The time that a tick takes.

    Parameters
    ----------
    number
        How many units a tick takes, above 0.
    unit
        Name of the unit, one of `SECONDS`. Times are shown in this unit.
    """

    number: Fraction = Fraction(1)
    unit: str = "us"

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
    """Return the tick that a text such as ``0.5 ms`` describes: a decimal number above 0 and a unit of time.

    Raises
    ------
    InputError
        If the value is no such text; the message names `key`.
    """
    found = AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or Fraction(found[1]) <= 0 or found[2] not in SECONDS:
        rule = f"must be a text of a number above 0 and one of {', '.join(SECONDS)}, e.g. '1 us'"
        raise InputError(rule, key=key, value=value)
    return Tick(Fraction(found[1]), found[2])
