"""A *worker* runs one member of a portfolio: it has threads and limits, and counts what steps take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from math import exp
from time import perf_counter
from typing import Protocol, TypeVar

from tightpipe.params.budget import Budget

from ..outcome import Ended, Idle, Outcome, Worked, failed

FAILURES = (MemoryError, RuntimeError)
"""Errors with which CP-SAT may fail."""

_Item = TypeVar("_Item")


class Member(Protocol):
    """A bound, a search or an exact model that works towards a goal in steps."""

    def step(self, worker: Worker) -> Outcome:
        """Work for a step within the limits that `worker` has now, and return what has come of it.

        After an `Ended`, there is no further step.
        """


Begin = Callable[["Worker"], Member]
"""Makes a member when its first step is due, for the worker that runs it."""


class Worker:
    """Runs one member with the threads and the time that a portfolio gives to it.

    - `begin`: makes the member, at the beginning of its first step.
    - `failures`: errors with which a solver program behind the member may fail. They end the member.
    - `whole`: the limits of the whole solve. The worker may get up to as many threads as they allow.
    - `threads`: the number of threads of the next step.
    - `share`: the share of the time that is left, 0 to 1, in which the worker is expected to take steps.
    - `effort`: the seconds of effort that are left to each thread; infinite if the solve has no effort limit.
    - `seconds`: the time that the steps have taken, in seconds.
    - `used`: the thread-seconds of all steps: of each step, its seconds times its number of threads.
    - `moved`: the sum of the shares of the gap that the steps have closed, in which older steps count less.
    - `idle`: whether the member had nothing to do in its last step.
    - `ended`: how the member has ended; None as long as it can go on.
    """

    def __init__(
        self, budget: Budget, begin: Begin, failures: tuple[type[Exception], ...] = FAILURES
    ) -> None:
        self._failures = failures
        self.whole, self.threads, self.share = budget, budget.threads, 1.0
        self.seconds = self.used = self.moved = self._last = 0.0
        self.effort = budget.effort / budget.threads
        self.idle = False
        self.ended: Ended | None = None
        self._begin = begin
        self._member: Member | None = None
        self._pool: ThreadPoolExecutor | None = None

    @property
    def budget(self) -> Budget:
        """The limits of the next step."""
        return self.whole.on(self.threads)

    @property
    def expected(self) -> float:
        """Seconds, from now on, in which steps are expected to be taken; 0 if the solve has no limit."""
        return self.share * self.left if self.whole.limited else 0.0

    @property
    def left(self) -> float:
        """Seconds of time or of effort that are left to the whole solve, whichever is less.

        The result is infinite if the solve has no limit.
        """
        return min(self.whole.left, max(0.0, self.effort))

    @property
    def over(self) -> bool:
        """Whether the time left to the solve is shorter than the last step was, or no effort is left.

        A step that cannot stop early should not begin then.
        """
        return self.left <= (0.0 if self.whole.endless else self._last)

    def step(self) -> None:
        """Let the member take its next step, and count its time; a failure of a solver program ends it."""
        begun, threads = perf_counter(), self.threads
        try:
            if self._member is None:
                self._member = self._begin(self)
            outcome = self._member.step(self)
        except self._failures as error:
            outcome = failed(error)
        took = perf_counter() - begun
        self.idle = isinstance(outcome, Idle)
        if isinstance(outcome, Ended):
            self.ended = outcome
        nominal = outcome.effort if isinstance(outcome, Worked) else 0.0
        if nominal > 0:  # a step without effort only passes on to the next piece of work
            self._last = took
        seconds = nominal if self.whole.endless else took
        self.seconds += seconds
        self.used += seconds * threads
        self.moved *= exp(-seconds / self._forgets)

    def on_each(self, work: Callable[[_Item], object], items: Iterable[_Item]) -> None:
        """Do a piece of work on each item, at most as many at a time as the whole solve has threads.

        The threads are kept from step to step until the worker is closed.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.whole.threads)
        list(self._pool.map(work, items))

    def close(self) -> None:
        """End the threads now; the garbage collector might do so in a thread that would wait forever."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def _forgets(self) -> float:
        params = self.whole.params.sides
        return params.memory * (self.seconds + self.left) + 1e-9 if self.whole.limited else params.forgets
