"""The window of a drawing: the stretch of time that it shows."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.errors import InputError
from ..core.integers import check_int
from ..core.metrics import finished
from ..core.schedule import Schedule

Window = tuple[int | None, int | None]
"""First and last tick that a drawing shows; None stands for the start or the end of the schedules."""

WHOLE: Window = (None, None)


def shown_ticks(schedules: Sequence[Schedule], window: Window) -> tuple[int, int]:
    """Return the first and the last tick of a drawing of schedules that share one time axis.

    Raises
    ------
    InputError
        If the window does not end after it begins, or no part of the schedules lies in it.
    """
    first, last = min(int(s.start.min()) for s in schedules), max(int(finished(s).max()) for s in schedules)
    start, end = (
        usual if given is None else check_int("window", given)
        for given, usual in zip(window, (first, last), strict=True)
    )
    if not start < end or start >= last or end <= first:
        rule = f"must be a stretch of time from a tick to a later one, within the ticks {first} to {last}"
        raise InputError(rule, key="window", value=f"{start} to {end}")
    return start, end
