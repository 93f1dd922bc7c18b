"""A *portfolio* runs members until the goal is reached, the limits are used up, or no member can do more.

One member searches for cheaper schedules or plans, the other proves bounds. Both work on the same goal: a
cheaper schedule shortens the horizons of the proofs, and a better bound ends the search. A *worker* runs one
member: it has threads and limits, and counts what steps take.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future, wait
from contextlib import closing
from math import exp
from threading import Event
from time import perf_counter
from typing import Protocol, TypeVar

from tightpipe.params.budget import Budget

from ..outcome import FAILURES, FINISHED, End, Ended, Idle, Outcome, Threads, Worked, failed

_Item = TypeVar("_Item")


class Member(Protocol):
    """A bound, a search or an exact model that works towards a goal in steps."""

    def step(self, worker: Worker) -> Outcome:
        """Work for a step within `worker`'s present limits, and return the outcome; `Ended` is the last."""


Begin = Callable[["Worker"], Member]
"""Makes a member when its first step is due, for the worker that runs it."""


class Worker:
    """Runs one member with the threads and the time that a portfolio gives to it.

    - `begin`: makes the member, at the beginning of its first step.
    - `failures`: errors that end the member, and nothing else.
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
        self._pool: Threads | None = None

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
        """Seconds of time or effort that are left to the whole solve, whichever is less; may be infinite."""
        return min(self.whole.left, max(0.0, self.effort))

    @property
    def over(self) -> bool:
        """Whether a step that cannot stop early should not begin: the last one took longer than is left."""
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
        """Do work on each item, on as many threads as the whole solve has, which are kept between steps."""
        if self._pool is None:
            self._pool = Threads(self.whole.threads)
        list(self._pool.map(work, items))

    def close(self) -> None:
        """End the threads now; the garbage collector might do so in a thread that would wait forever."""
        if self._pool is not None:
            self._pool.shutdown()

    @property
    def _forgets(self) -> float:
        params = self.whole.params.sides
        return params.memory * (self.seconds + self.left) + 1e-9 if self.whole.limited else params.forgets


Begins = Generator[Begin, Ended, None]


class Sequence:
    """Members that work one after another.

    Each begins when the one before it has ended; after a signal none begins any more. The sequence ends as
    the first of its members did that ended early. That a member does not suit the instance is no such end,
    because the others do its work.

    - `begins`: yields what begins each member when the one before it has ended, and is sent how that one
      ended. So it can choose the next one by what has come of the earlier ones.
    """

    def __init__(self, begins: Begins) -> None:
        self._begins = begins
        self._member: Member | None = None
        self._last: Ended | None = None
        self._ended = FINISHED

    def step(self, worker: Worker) -> Outcome:
        """Take a step of the present member."""
        if self._member is None:
            try:
                begin = self._begins.send(self._last)  # type: ignore[arg-type]  # None begins a generator
            except StopIteration:
                return self._ended
            self._member = begin(worker)
        outcome = self._member.step(worker)
        if not isinstance(outcome, Ended):
            return outcome
        self._member, self._last = None, outcome
        if outcome.stopped:
            return outcome
        if outcome.end is not End.UNSUITED and not self._ended.early:
            self._ended = outcome
        return Worked()


def in_sequence(*begins: Begin) -> Begin:
    """Return what makes a `Sequence` of members."""
    return lambda _: Sequence(_each_of(begins))


def _each_of(begins: Iterable[Begin]) -> Begins:
    """Yield what begins the members of a sequence, however each of them ends."""
    for begin in begins:  # noqa: UP028  # an iterator of a list takes nothing that is sent to it
        yield begin


class Goal(Protocol):
    """What the members of a portfolio work on: a best answer and a bound, which are to meet."""

    @property
    def cost(self) -> int:
        """The cost of the best answer in ticks."""

    @property
    def bound(self) -> int:
        """The best lower bound of the cost in ticks."""

    @property
    def closed(self) -> bool:
        """Whether the best answer is proven to be optimal."""


def alone(budget: Budget, goal: Goal, begin: Begin) -> Ended:
    """Run one member on all threads to the goal or a limit; return its end, `FINISHED` if it could go on."""
    with closing(Worker(budget, begin)) as worker:
        while not (goal.closed or worker.ended or worker.left <= 0):
            worker.step()
            worker.effort = (budget.effort - worker.used) / budget.threads
        return worker.ended or FINISHED


def in_turn(budget: Budget, goal: Goal, search: Begin, proof: Begin, share: Callable[[], float]) -> Ended:
    """Run two members by turns, each with all threads, until neither has anything to do.

    Return how the member ended that ended first; `FINISHED` if none did. What members raise is raised here.
    `share` returns the share of the time, 0 to 1, that the proofs should have from now on.
    """
    with closing(Worker(budget, search, ())) as searcher, closing(Worker(budget, proof, ())) as prover:
        while not goal.closed and budget.left > 0:
            due = prover.used <= share() * (prover.used + searcher.used)
            for worker in (prover, searcher) if due else (searcher, prover):
                worker.step()
                if not worker.idle:
                    break
            if worker.ended or worker.idle:
                return worker.ended or FINISHED
    return FINISHED


class Portfolio:
    """Runs two members side by side: with several threads at the same time, with one thread by turns.

    `hope` is the share of the threads' time that the proofs get while neither closes any of the gap.
    """

    def __init__(self, budget: Budget, goal: Goal, search: Begin, proof: Begin, hope: float = 0.5) -> None:
        self._goal, self._hope, self._halt = goal, hope, Event()
        self.budget = budget.halted_by(self._halt)
        self._search, self._proof = Worker(self.budget, search), Worker(self.budget, proof)
        self._running: Future[None] | None = None

    def run(self) -> Ended:
        """Run both members, and return how one of them ended early; `FINISHED` if none did.

        The steps of the proofs run in a thread of their own. The search runs in the calling thread, where
        signals arrive.
        """
        search, proof = self._search, self._proof
        with closing(proof), closing(search), Threads(1) as pool:
            # If a signal interrupts the pool while it starts its thread, the pool does not wait for this
            # thread in the end, and a step could go on there. So the thread starts now, before any step.
            pool.submit(int).result()
            try:
                while not (self._goal.closed or search.left <= 0):
                    if search.ended and proof.ended and self._running is None:
                        break
                    self._step(pool)
            finally:
                self._halt.set()
        if self._running is not None:
            self._running.result()
        return next((w.ended for w in (search, proof) if w.ended and w.ended.early), FINISHED)

    def _step(self, pool: Executor) -> None:
        """Begin a step of the proofs where one is due, and take a step of the search or wait."""
        share = self._share_of_proof()
        if self._running is None and self._is_due(share):
            self._proof.threads = self._threads_of_proof(share)
            self._proof.share = self._share_of_steps(share)
            self._running = pool.submit(self._prove)
        self._step_of_search()
        if self._running is not None and self._running.done():
            self._running.result()
            self._running = None
        effort = self.budget.effort - self._search.used - self._proof.used
        self._search.effort = self._proof.effort = effort / self.budget.threads

    def _share_of_proof(self) -> float:
        """Return the share of all threads' time, 0 to 1, that the proofs should have.

        The share is 1 once the search has ended, and 0 once the proofs have ended. Until then it follows from
        how much of the gap each member has closed. With one thread the share is at most half, because a
        schedule that is a little better may need most of the time. With several threads the share is usually
        at least `hope`, because many proofs raise the bound only at the end of a long step.
        """
        if self._search.ended or self._proof.ended:
            return float(self._search.ended is not None)
        params, moved = self.budget.params.sides, self._proof.moved + self._search.moved
        share = (self._proof.moved + self._hope * params.nothing_moves) / (moved + params.nothing_moves)
        if self.budget.threads == 1:
            return min(params.half, max(self._least, share))
        return min(1 - params.least, max(self._least, self._hope, share))

    @property
    def _least(self) -> float:
        """The least share of the threads' time for proofs, which is smaller where there is little hope."""
        params = self.budget.params.sides
        return min(params.least, max(params.hopeless, self._hope))

    @property
    def _usual_share(self) -> float:
        """The proofs' share of one thread's time while neither member closes any of the gap.

        The search plans its annealing with this share. The present share rises and falls with every success
        of a member. If the plan rose and fell with it, the annealing would cool early, and could not warm up
        again.
        """
        params = self.budget.params.sides
        return 0.0 if self._proof.ended else min(params.half, max(self._least, self._hope))

    def _share_of_steps(self, share: float) -> float:
        """Return in which share of the remaining time the proofs are expected to take steps.

        `share` is the proofs' share of all threads' time. If they run on some of the threads only, they take
        steps for a larger share of the time, up to all of it.
        """
        return min(1.0, share * self.budget.threads / self._proof.threads)

    def _is_due(self, share: float) -> bool:
        return not self._proof.ended and self._proof.used <= share * (self._proof.used + self._search.used)

    def _threads_of_proof(self, share: float) -> int:
        threads = self.budget.threads
        most = threads if self._search.ended else max(1, threads - 1)
        return min(most, max(1, round(share * threads)))

    def _prove(self) -> None:
        bound = self._goal.bound
        gap = self._goal.cost - bound
        self._proof.step()
        self._proof.moved += (self._goal.bound - bound) / max(1, gap)

    def _step_of_search(self) -> None:
        """Take a step of the search with the free threads, or wait for the proofs if it cannot take one."""
        free = self.budget.threads - (self._proof.threads if self._running is not None else 0)
        if self._search.ended or not free:
            if self._running is not None:
                wait([self._running])
            return
        self._search.threads = free
        self._search.share = 1.0 if self.budget.threads > 1 else 1.0 - self._usual_share
        before = self._goal.cost
        gap = before - self._goal.bound
        self._search.step()
        self._search.moved += (before - self._goal.cost) / max(1, gap)
