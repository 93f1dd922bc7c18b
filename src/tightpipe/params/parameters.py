"""What all classes of parameters share: checked values, and the sentence that documents each field.

A class of parameters is a frozen dataclass that holds the numbers of one search. Each field is declared by
`fraction`, `amount`, `count`, `entries` or `rows`, which give its default and the values that it may have.
The docstring of the class lists what each field means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from typing import Any, TypeVar

from ..base.errors import LARGEST, InputError, is_list, plain

Value = float | tuple["Value", ...]
"""A number, or a tuple of numbers or of such tuples."""


_Numbers = TypeVar("_Numbers", bound="tuple[float, ...]")


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a field may have: numbers between two others, or lists of them."""

    #: the smallest and the largest number
    least: float
    most: float = LARGEST
    whole: bool = False  #: whether the numbers are integers
    above: bool = False  #: whether the numbers must be above `least`, and not equal to it
    #: for lists, the length that lists at each level of nesting must have; 0 means any length from 1 on.
    #: Empty for a single number.
    lengths: tuple[int, ...] = ()

    def __str__(self) -> str:
        number = "an integer" if self.whole else "a number"
        text = f"{number} {'above' if self.above else 'from'} {self.least:g} to {self.most:g}"
        for length in reversed(self.lengths):
            text = f"a row of {length}, each {text}" if length else f"a list, each entry {text}"
        return text

    def checked(self, key: str, value: Any) -> Value:
        """Return the value in Python's types; raise an InputError with `key`, value and range if outside."""
        return self._checked(key, plain(value), self.lengths)

    def _checked(self, key: str, value: Any, lengths: tuple[int, ...]) -> Value:
        if lengths:
            if not is_list(value) or not value or len(value) != (lengths[0] or len(value)):
                raise InputError(f"must be {self._at(lengths)}", key=key, value=value)
            return tuple(self._checked(f"{key}[{i}]", v, lengths[1:]) for i, v in enumerate(value))
        if not self._fits(value):
            raise InputError(f"must be {self._at(lengths)}", key=key, value=value)
        return value if self.whole else float(value)

    def _fits(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        in_range = self.least <= value <= self.most  # never true of NaN
        return in_range and not (self.above and value == self.least)

    def _at(self, lengths: tuple[int, ...]) -> Range:
        return Range(self.least, self.most, self.whole, self.above, lengths)


def fraction(default: float, *, above: bool = False) -> Any:
    """Return a field for a share or a probability, from 0 to 1; `above` excludes 0."""
    return _declared(default, Range(0, 1, above=above))


def amount(default: float, least: float = 0.0, *, above: bool = False) -> Any:
    """Return a field for a number from `least` on; `above` excludes `least` itself."""
    return _declared(default, Range(least, above=above))


def count(default: int, least: int = 1, most: float = LARGEST) -> Any:
    """Return a field for an integer from `least` to `most`."""
    return _declared(default, Range(least, most, whole=True))


def entries(
    *default: float, least: float = 0.0, most: float = LARGEST, whole: bool = False, above: bool = False
) -> Any:
    """Return a field for a list of at least one number, each from `least` to `most`."""
    return _declared(default, Range(least, most, whole, above, (0,)))


def rows(*default: tuple[float, ...], least: float = 0.0, most: float = LARGEST) -> Any:
    """Return a field for a list of rows of numbers, each row as long as those of the default."""
    return _declared(default, Range(least, most, lengths=(0, len(default[0]))))


def _declared(default: Value, allowed: Range) -> Any:
    return field(default=default, metadata={"range": allowed})


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one search; a value that is out of range is refused when they are made."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = each.metadata["range"].checked(each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, value)


def check_rises(key: str, small: float, large: float, name: str) -> None:
    """Raise an InputError unless the value `small` of `key` is at most `large`, the value of `name`."""
    if small > large:
        raise InputError(f"must be at most {name} = {large:g}", key=key, value=small)


def numbers(kind: type[_Numbers], parameters: Parameters) -> _Numbers:
    """Return the parameters that a compiled loop reads, as the named tuple `kind` of the fields it names."""
    return kind(*(getattr(parameters, name) for name in kind._fields))  # type: ignore[attr-defined]


def as_in_a_file(value: Value) -> Any:
    """Return a value with lists in place of tuples."""
    return list(map(as_in_a_file, value)) if isinstance(value, tuple) else value


def documented(kind: type[Parameters]) -> dict[str, str]:
    """Return what the list in a class's docstring says of each field; empty under ``python -OO``."""
    found: dict[str, str] = {}
    for entry in re.split(r"\n+- (?=`)", cleandoc(kind.__doc__ or ""))[1:]:
        names, _, text = entry.partition(": ")
        line = " ".join(text.split())
        found |= dict.fromkeys(re.findall(r"`(\w+)`", names), line[:1].upper() + line[1:])
    return found


def summary_of(kind: type[Parameters]) -> str:
    """Return the first line of the docstring of a class; empty where Python has removed the docstrings."""
    return cleandoc(kind.__doc__ or "").partition("\n")[0]
