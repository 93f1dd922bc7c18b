"""A report consists of entries, one for each line of its table, and of figures."""

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
        Values of the line, by the key of their column.
    label
        Name of the schedule on the page.
    schedule
        A valid schedule; None if no schedule was found.
    method
        Name of the method that made the schedule; None if the method is unknown.
    bound
        A proven lower bound of the cost in ticks; None if no bound is known.
    problem
        Name of the problem that the schedule solves. Charts of one problem are drawn beneath each other for
        comparison; charts without a problem (empty) are all drawn together.
    reference
        Whether a heuristic made the schedule. Other entries of the problem are compared with such an entry.
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
    """The content of a page: its title, a line on the conditions of the computation, entries and figures."""

    title: str
    conditions: str
    entries: tuple[Entry, ...]
    figures: tuple[Figure, ...] = ()
