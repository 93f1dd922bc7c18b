"""Checks of the numbers that models of noise take."""

from __future__ import annotations

from math import isfinite
from typing import Any

from ..core.errors import InputError
from ..core.instance import Instance


def check_number(key: str, value: Any, low: float, high: float, *, above: bool = False) -> None:
    """Raise an error unless a value is a finite number from `low` to `high`, or above `low` if `above`.

    Raises
    ------
    InputError
        If the value is not such a number; the message names `key`, the value and the range.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not number or not low <= value <= high or (above and value == low):
        interval = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise InputError(f"must be a number {interval}", key=key, value=value)


def check_device(instance: Instance, key: str, device: int) -> None:
    """Raise an error if the instance has no device with the number `device`.

    Raises
    ------
    InputError
        If `device` is below 0, or not below the number of devices.
    """
    if not 0 <= device < instance.devices:
        raise InputError(f"the instance has devices 0..{instance.devices - 1}", key=key, value=device)
