"""The best schedule and bound so far, and their history."""

from __future__ import annotations

from tightpipe.interruption import was_stopped
from tightpipe.metrics import cost
from tightpipe.options import Progress
from tightpipe.result import LogEntry, Result, Status
from tightpipe.schedule import Schedule

from .clock import Clock


class Incumbent:
    """Keeps the cheapest schedule and the largest bound, and logs each improvement.

    Parameters
    ----------
    schedule
        The schedule to start from.
    bound
        A proven bound.
    clock
        Stamps the log.
    tell
        Called with each new log entry.
    """

    def __init__(self, schedule: Schedule, bound: int, clock: Clock, tell: Progress) -> None:
        self.schedule, self.bound = schedule, bound
        self.log: list[LogEntry] = []
        self._clock, self._tell = clock, tell
        self._cost = cost(schedule)
        self._write()

    @property
    def closed(self) -> bool:
        """Whether the schedule is proven optimal."""
        return self.bound >= cost(self.schedule)

    def result(self, method: str, reason: str) -> Result:
        """Return what a method has come to; `reason` says why it ended early, if it did.

        A signal is told even where the gap is closed: what comes after a solve is not to go on.
        """
        return Result(
            self.schedule.instance,
            method,
            Status.OPTIMAL if self.closed else Status.FEASIBLE,
            self.schedule,
            self.bound,
            self._clock.elapsed,
            tuple(self.log),
            "" if self.closed and not was_stopped(reason) else reason,
        )

    def offer(self, schedule: Schedule | None) -> None:
        """Keep the schedule if it is cheaper."""
        if schedule is not None and cost(schedule) < cost(self.schedule):
            self.schedule = schedule
            self.report(cost(schedule), None)

    def report(self, new_cost: int | None, new_bound: int | None) -> None:
        """Log a cost or bound if it is better than what is known.

        A bound is capped by the cost: a search that is told the cost as its limit may prove more.
        """
        better_cost = min(self._cost, self._cost if new_cost is None else new_cost)
        better_bound = max(self.bound, min(self.bound if new_bound is None else new_bound, better_cost))
        if (better_cost, better_bound) != (self._cost, self.bound):
            self._cost, self.bound = better_cost, better_bound
            self._write()

    def _write(self) -> None:
        entry = LogEntry(self._clock.elapsed, self._cost, self.bound)
        self.log.append(entry)
        self._tell(entry)
