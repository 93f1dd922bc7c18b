"""An export target is a file format of another program, with functions that write and read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..core.errors import InputError
from ..core.schedule import Order, Schedule
from .model_split import ModelSplit

Written = TypeVar("Written", Schedule, ModelSplit)
"""What is written: a schedule, or the cut of a model."""
Read = TypeVar("Read", Order, ModelSplit)
"""What a file says: the order of a schedule, or the cut of a model."""


def unchanged(content: Any, **options: object) -> Any:
    """Return the content itself, for targets that prepare nothing."""
    return content


@dataclass(frozen=True)  # without slots, with which a generic class cannot be frozen
class Target(Generic[Written, Read]):
    """A file format of another program.

    Parameters
    ----------
    name
        Name of the format, as given to `export` and on the command line.
    summary
        Description of the format in one line.
    write
        Function that takes what `prepare` returns and options, and returns the text of the file. It raises
        `InputError` if the other program cannot express the content.
    read
        Function that takes the text of a file and returns what it says.
    options
        Names of the options that `prepare` and `write` take.
    prepare
        Function that takes a schedule or a cut and options, and returns what is written. It raises
        `InputError` if the other program cannot run it.
    """

    name: str
    summary: str
    write: Callable[..., str]
    read: Callable[[str], Read]
    options: tuple[str, ...] = ()
    prepare: Callable[..., Written] = unchanged

    def check_options(self, options: Mapping[str, object]) -> None:
        """Raise an InputError if `options` has an option that the target does not take."""
        for name, value in options.items():
            if name not in self.options:
                taken = ", ".join(self.options) or "none"
                rule = f"{self.name} has no such option; it takes {taken}"
                raise InputError(rule, key=name, value=value)


ScheduleTarget = Target[Schedule, Order]
SplitTarget = Target[ModelSplit, ModelSplit]
