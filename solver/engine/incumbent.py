"""The incumbent: the best schedule and the best bound so far, and how they came about."""

from __future__ import annotations

from threading import RLock
from time import perf_counter

from tightpipe.model.metrics import cost
from tightpipe.model.result import LogEntry, Progress, Proof, Result, Status, refuse_contradiction
from tightpipe.model.schedule import Schedule

from ..outcome import Ended


class Incumbent:
    """The *incumbent*: the cheapest valid schedule and the largest bound so far, with a log of improvements.

    Several threads may offer schedules and prove bounds at the same time.

    The `bound` has a `proof` and, where several bounds have the same kind, a `name`. The times in the
    log count from `begun`, in seconds of `time.perf_counter`. `tell` is called with each new log entry.
    """

    def __init__(
        self,
        schedule: Schedule,
        bound: int,
        proof: Proof | None,
        begun: float,
        tell: Progress,
        name: str = "",
    ) -> None:
        self.schedule, self.bound, self.proof, self._name = schedule, bound, proof, name
        self.log: list[LogEntry] = []
        self._begun, self._tell = begun, tell
        self._cost = cost(schedule)
        self._lock = RLock()
        self._write()

    @property
    def elapsed(self) -> float:
        """Seconds since the work began."""
        return perf_counter() - self._begun

    @property
    def cost(self) -> int:
        """The cost of the schedule in ticks."""
        return cost(self.schedule)

    @property
    def closed(self) -> bool:
        """Whether the bound equals the cost of the schedule, so that the schedule is proven optimal.

        Raise a ContradictionError if the bound is above the cost of the schedule.
        """
        refuse_contradiction(self.schedule, self.bound, self.proof, self._name)
        return self.bound == self.cost

    def result(self, method: str, ended: Ended) -> Result:
        """Return the result of a method that has ended like this.

        The result leaves the reason out if the schedule is proven optimal, unless the reason is a signal,
        which asks the caller to stop as well.
        """
        return Result(
            self.schedule.instance,
            method,
            Status.OPTIMAL if self.closed else Status.FEASIBLE,
            self.schedule,
            self.bound,
            self.elapsed,
            tuple(self.log),
            "" if self.closed and not ended.stopped else ended.text,
            self.proof,
        )

    def offer(self, schedule: Schedule | None) -> None:
        """Keep the schedule if there is one and it is cheaper than the incumbent's."""
        with self._lock:
            if schedule is not None and cost(schedule) < self.cost:
                self.schedule = schedule
                self.report_cost(cost(schedule))

    def report_cost(self, new_cost: int | None) -> None:
        """Log a cost in ticks if it is lower than every cost so far.

        The search that has found the cost will offer its schedule later. None is ignored.
        """
        with self._lock:
            if new_cost is not None and new_cost < self._cost:
                self._cost = new_cost
                self._write()

    def prove(self, bound: int | None, proof: Proof | None) -> None:
        """Keep and log a proven bound, in ticks, if it is larger than the bound so far.

        A search that only looks at costs up to a horizon proves nothing beyond the horizon plus one tick, and
        caps its bound at that value before it calls this method. A bound that contradicts the schedule is
        not noticed here but by `closed`, because `closed` runs in the thread that solves, whereas this
        method may run in a thread of the backend.
        """
        with self._lock:
            if bound is not None and bound > self.bound:
                self.bound, self.proof, self._name = bound, proof, ""
                self._write()

    def update(self, entry: LogEntry) -> None:
        """Log the cost, and keep and log the bound, in the log entry of another solver.

        Each of the two is ignored unless it is better than the best so far. The other solver has
        started from this incumbent. Its schedule is offered when it ends.
        """
        self.report_cost(entry.cost)
        self.prove(entry.bound, entry.proof)

    def _write(self) -> None:
        entry = LogEntry(self.elapsed, self._cost, self.bound, self.proof)
        self.log.append(entry)
        self._tell(entry)
