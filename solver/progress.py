"""The best schedule and bound so far, and their history."""

from __future__ import annotations

from time import perf_counter

from tightpipe.core.contradiction import refuse_contradiction
from tightpipe.core.interruption import was_stopped
from tightpipe.core.metrics import cost
from tightpipe.core.progress import Progress
from tightpipe.core.result import LogEntry, Proof, Result, Status
from tightpipe.core.schedule import Schedule


class Incumbent:
    """Keeps the cheapest schedule and the largest bound, and logs each improvement.

    Parameters
    ----------
    schedule
        The schedule to start from.
    bound
        A proven bound.
    proof
        What the bound rests on; None where a caller gave it.
    begun
        When the work began, in seconds of `time.perf_counter`: the log counts from then.
    tell
        Called with each new log entry.
    """

    def __init__(
        self, schedule: Schedule, bound: int, proof: Proof | None, begun: float, tell: Progress
    ) -> None:
        self.schedule, self.bound, self.proof = schedule, bound, proof
        self.log: list[LogEntry] = []
        self._begun, self._tell = begun, tell
        self._cost = cost(schedule)
        self._write()

    @property
    def elapsed(self) -> float:
        """Seconds since the work began."""
        return perf_counter() - self._begun

    @property
    def closed(self) -> bool:
        """Whether the schedule is proven optimal.

        Raises
        ------
        ContradictionError
            If the bound is above the schedule's cost.
        """
        refuse_contradiction(self.schedule, self.bound, self.proof)
        return self.bound == cost(self.schedule)

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
            self.elapsed,
            tuple(self.log),
            "" if self.closed and not was_stopped(reason) else reason,
            self.proof,
        )

    def offer(self, schedule: Schedule | None) -> None:
        """Keep the schedule if it is cheaper."""
        if schedule is not None and cost(schedule) < cost(self.schedule):
            self.schedule = schedule
            self.hear(cost(schedule))

    def hear(self, new_cost: int | None) -> None:
        """Log the cost of a schedule that a search will offer, if it is lower than what is known."""
        if new_cost is not None and new_cost < self._cost:
            self._cost = new_cost
            self._write()

    def prove(self, bound: int | None, proof: Proof | None) -> None:
        """Keep and log a proven bound if it is larger than what is known.

        A search that only looks below a horizon proves nothing above it: it has to cap what it proves
        itself, at one tick more than the horizon. Whether a bound contradicts the schedule is looked at by
        `closed`, which is asked by the thread that solves: this here may be called by a solver's own.
        """
        if bound is not None and bound > self.bound:
            self.bound, self.proof = bound, proof
            self._write()

    def follow(self, entry: LogEntry) -> None:
        """Log what a solver that was started from here tells, if it is better than what is known."""
        self.hear(entry.cost)
        self.prove(entry.bound, entry.proof)

    def _write(self) -> None:
        entry = LogEntry(self.elapsed, self._cost, self.bound, self.proof)
        self.log.append(entry)
        self._tell(entry)
