"""What an export target is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..core.schedule import Order, Schedule


@dataclass(frozen=True, slots=True)
class Target:
    """A file format of another program.

    Parameters
    ----------
    name
        As given to `export` and on the command line.
    summary
        One line for people.
    prepare
        Schedule and options -> the schedule that is written; raises `InputError` where the target
        cannot run it.
    write
        The prepared schedule and the options -> the file's text.
    read
        The file's text -> the order that it holds.
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
    """Return the schedule: the target runs all of them."""
    return schedule
