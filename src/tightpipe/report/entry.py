"""What a report is about: entries, one per line of its table, and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.schedule import Schedule
from .figures import Figure

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the summary table, with its schedule.

    Parameters
    ----------
    values
        The line, by column.
    label
        What the schedule is called.
    schedule
        A valid schedule, or None where there is none.
    method
        Name of the method that made it, or None.
    bound
        A proven lower bound of the cost in ticks, or None.
    problem
        Entries of one problem are drawn beneath each other for comparison; empty: alone.
    reference
        Whether it is what others of its problem are compared with: a heuristic's schedule.
    """

    values: Mapping[str, Value]
    label: str
    schedule: Schedule | None
    method: str | None = None
    bound: int | None = None
    problem: str = ""
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Title, a line about how the numbers came about, entries and figures."""

    title: str
    conditions: str
    entries: tuple[Entry, ...]
    figures: tuple[Figure, ...] = ()
