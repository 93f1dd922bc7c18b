"""An export target is a file format of another program, with functions that write and read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..core.errors import InputError
from ..core.schedule import Order, Schedule


@dataclass(frozen=True, slots=True)
class Target:
    """A file format of another program.

    Parameters
    ----------
    name
        Name of the format, as given to `export` and on the command line.
    summary
        Description of the format in one line.
    prepare
        Function that takes a schedule and options, and returns the schedule that is written. It raises
        `InputError` if the other program cannot run the schedule.
    write
        Function that takes the prepared schedule and options, and returns the text of the file.
    read
        Function that takes the text of a file and returns its order.
    options
        Names of the options that `prepare` and `write` take.
    """

    name: str
    summary: str
    prepare: Callable[..., Schedule]
    write: Callable[..., str]
    read: Callable[[str], Order]
    options: tuple[str, ...] = ()


def unchanged(schedule: Schedule, **options: object) -> Schedule:
    """Return the schedule itself, for targets that can run every schedule."""
    return schedule


def check_options(target: str, known: tuple[str, ...], options: Mapping[str, object]) -> None:
    """Raise an InputError if `options` has an option that is not among the `known` options of the target."""
    for name, value in options.items():
        if name not in known:
            taken = ", ".join(known) or "none"
            raise InputError(f"{target} has no such option; it takes {taken}", key=name, value=value)
