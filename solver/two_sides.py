"""Two sides of one solve share its threads: one searches for cheaper schedules, the other proves bounds.

Each *side* is a generator that works for a turn between two yields, and keeps its state until its next
turn. Both know the same incumbent: a cheaper schedule shortens the horizons of the proofs, and a better bound
ends the search. With several threads both sides work at the same time. With one thread they take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing
from math import exp
from threading import Event
from time import perf_counter

from tightpipe.core.budget import Budget
from tightpipe.core.metrics import cost

from .incumbent import Incumbent
from .run_search import FAILURES, failure

Turns = Generator[float, None, str]
"""A generator that works for one turn before each yield, and yields the nominal seconds of that turn.

These are the seconds that such a turn takes on one thread of a usual machine, the same in every run. Without
a deadline they replace the measured time, so that a solve with one thread is reproducible, and the effort
limit counts them. At its end the generator returns why it ended early, or the empty string.
"""


class Side:
    """One side of a solve, with its threads and with what it has used and achieved.

    Parameters
    ----------
    budget
        The limits of the whole solve. The side may get up to as many threads as they allow.
    start
        Called with the side; returns its turns, which read the attributes of the side before each turn.

    Attributes
    ----------
    whole
        The limits of the whole solve, as given.
    threads
        The number of threads of the next turn.
    share
        The share of the time that is left, 0 to 1, in which the side is expected to take turns.
    effort
        The seconds of effort that are left to each thread; infinite if the solve has no effort limit.
    seconds
        The time in which the side has taken turns, in seconds.
    used
        The thread-seconds of all turns: of each turn, its seconds times its number of threads.
    moved
        The sum of the shares of the gap that the turns have closed, in which older turns count less.
    ended
        Whether the side has taken its last turn.
    reason
        Why the side ended early, the empty string if it did not.
    """

    def __init__(self, budget: Budget, start: Callable[[Side], Turns]) -> None:
        self.whole, self.threads, self.share = budget, budget.threads, 1.0
        self.seconds = self.used = self.moved = self._last = 0.0
        self.effort = budget.effort / budget.threads
        self.ended, self.reason = False, ""
        self._turns = start(self)

    @property
    def budget(self) -> Budget:
        """The limits of the next turn."""
        return self.whole.on(self.threads)

    @property
    def left(self) -> float:
        """Seconds, from now on, in which the side is expected to take turns; 0 if the solve has no limit."""
        return self.share * self.rest if self.whole.limited else 0.0

    @property
    def rest(self) -> float:
        """Seconds of time or of effort that are left to the whole solve, whichever is less.

        The result is infinite if the solve has no limit.
        """
        return min(self.whole.left, max(0.0, self.effort))

    @property
    def over(self) -> bool:
        """Whether the time left to the solve is shorter than the last turn was, or no effort is left.

        A turn that cannot stop early should not begin then.
        """
        return self.rest <= (0.0 if self.whole.endless else self._last)

    def turn(self) -> None:
        """Take the next turn and count its time.

        If the generator returns or a solver fails, the turn is the last one, and `reason` says why.
        """
        begun, threads = perf_counter(), self.threads
        try:
            nominal = next(self._turns)
        except StopIteration as end:
            self.ended, self.reason, nominal = True, str(end.value), 0.0
        except FAILURES as error:
            self.ended, self.reason, nominal = True, failure(error), 0.0
        self._last = perf_counter() - begun
        seconds = nominal if self.whole.endless else self._last
        self.seconds += seconds
        self.used += seconds * threads
        self.moved *= exp(-seconds / self._forgets)

    def close(self) -> None:
        """End the generator of the turns now, and with it the threads that the turns have started.

        Without this call, the garbage collector would end the generator, at any time and in any thread. In
        some threads, to wait for the threads of the turns could last forever.
        """
        self._turns.close()

    @property
    def _forgets(self) -> float:
        params = self.whole.params.sides
        return params.memory * (self.seconds + self.rest) + 1e-9 if self.whole.limited else params.forgets


Start = Callable[[Side], Turns]


def alone(budget: Budget, incumbent: Incumbent, start: Start) -> str:
    """Run one side with all threads; return why it ended early, the empty string if it did not.

    The side runs until the gap is closed, its last turn is over, or time or effort is up. `start` begins its
    turns, as in `Side`.
    """
    side = Side(budget, start)
    try:
        while not (side.ended or incumbent.closed or side.rest <= 0):
            side.turn()
            side.effort = (budget.effort - side.used) / budget.threads
    finally:
        side.close()
    return side.reason


class SideBySide:
    """Runs two sides until the gap is closed, time is up, or both have taken their last turns.

    Parameters
    ----------
    budget
        The limits of both sides together.
    incumbent
        The schedule and the bound that both sides improve.
    search, proof
        Functions that begin the turns of the side that searches for schedules, and of the side that proves
        bounds, as `start` of `Side`.
    hope
        The share of the threads' time, 0 to 1, that the proofs get while neither side closes any of the gap.
    """

    def __init__(
        self, budget: Budget, incumbent: Incumbent, search: Start, proof: Start, hope: float = 0.5
    ) -> None:
        self.incumbent, self._hope, self._halt = incumbent, hope, Event()
        self.budget = budget.halted_by(self._halt)
        self.search, self.proof = Side(self.budget, search), Side(self.budget, proof)
        self._running: Future[None] | None = None

    def run(self) -> str:
        """Run both sides, and return why one of them ended early, the empty string if none did.

        The turns of the proofs run in a thread of their own. The search runs in the calling thread, where
        signals arrive.
        """
        with closing(self.proof), closing(self.search), ThreadPoolExecutor(1) as pool:
            # If a signal interrupts the pool while it starts its thread, the pool does not wait for this
            # thread in the end, and a turn could go on there. So the thread starts now, before any turn.
            pool.submit(int).result()
            try:
                while not (self._both_ended or self.incumbent.closed or self.search.rest <= 0):
                    self._step(pool)
            finally:
                self._halt.set()
        if self._running is not None:
            self._running.result()
        return self.search.reason or self.proof.reason

    @property
    def _both_ended(self) -> bool:
        return self.search.ended and self.proof.ended and self._running is None

    def _step(self, pool: Executor) -> None:
        """Begin a turn of the proofs where one is due, and take a turn of the search or wait."""
        share = self._share_of_proof()
        if self._running is None and self._is_due(share):
            self.proof.threads = self._threads_of_proof(share)
            self.proof.share = self._share_of_turns(share)
            self._running = pool.submit(self._prove)
        self._search()
        if self._running is not None and self._running.done():
            self._running.result()
            self._running = None
        effort = self.budget.effort - self.search.used - self.proof.used
        self.search.effort = self.proof.effort = effort / self.budget.threads

    def _share_of_proof(self) -> float:
        """Return the share of all threads' time, 0 to 1, that the proofs should have.

        The share is 1 once the search has ended, and 0 once the proofs have ended. Until then it follows from
        how much of the gap each side has closed. With one thread the share is at most half, because a
        schedule that is a little better may need most of the time. With several threads the share is usually
        at least `hope`, because many proofs raise the bound only at the end of a long turn.
        """
        if self.search.ended or self.proof.ended:
            return float(self.search.ended)
        params, moved = self.budget.params.sides, self.proof.moved + self.search.moved
        share = (self.proof.moved + self._hope * params.nothing_moves) / (moved + params.nothing_moves)
        if self.budget.threads == 1:
            return min(params.half, max(params.least, share))
        return min(1 - params.least, max(params.least, self._hope, share))

    @property
    def _usual_share(self) -> float:
        """The proofs' share of one thread's time while neither side closes any of the gap.

        The search plans its annealing with this share. The present share rises and falls with every success
        of a side. If the plan rose and fell with it, the annealing would cool early, and could not warm up
        again.
        """
        params = self.budget.params.sides
        return 0.0 if self.proof.ended else min(params.half, max(params.least, self._hope))

    def _share_of_turns(self, share: float) -> float:
        """Return in which share of the remaining time the proofs are expected to take turns.

        `share` is the proofs' share of all threads' time. If they run on some of the threads only, they take
        turns for a larger share of the time, up to all of it.
        """
        return min(1.0, share * self.budget.threads / self.proof.threads)

    def _is_due(self, share: float) -> bool:
        return not self.proof.ended and self.proof.used <= share * (self.proof.used + self.search.used)

    def _threads_of_proof(self, share: float) -> int:
        threads = self.budget.threads
        most = threads if self.search.ended else max(1, threads - 1)
        return min(most, max(1, round(share * threads)))

    def _prove(self) -> None:
        bound = self.incumbent.bound
        gap = cost(self.incumbent.schedule) - bound
        self.proof.turn()
        self.proof.moved += (self.incumbent.bound - bound) / max(1, gap)

    def _search(self) -> None:
        """Take a turn of the search with the free threads, or wait for the proofs if it cannot take one."""
        free = self.budget.threads - (self.proof.threads if self._running is not None else 0)
        if self.search.ended or not free:
            if self._running is not None:
                wait([self._running])
            return
        self.search.threads = free
        self.search.share = 1.0 if self.budget.threads > 1 else 1.0 - self._usual_share
        before = cost(self.incumbent.schedule)
        gap = before - self.incumbent.bound
        self.search.turn()
        self.search.moved += (before - cost(self.incumbent.schedule)) / max(1, gap)
