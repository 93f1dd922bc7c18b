"""A budget holds the limits of a solve (deadline or effort, threads, memory), its seed and its parameters.

A budget is made once, where a solve begins. All functions that work for the solve get this budget, or one
that is narrowed to a part of the time. The deadline is a point in time and not a duration, so no function has
to subtract the time that was already spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from threading import Event
from time import perf_counter

from .params.solve_params import DEFAULTS, SolveParams

_UNENDING = 600.0  # seconds for a search that would not end by itself
_SHORTEST, _LONGEST = 0.01, 1e8  # seconds; not every solver takes 0 or infinity
_SEEDS = 2**31  # number of seeds; solvers take integers of 32 bits with a sign


class TimeUpError(Exception):
    """Work that has no result before its end was given up, because the time of its budget is up."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Deadline, threads, seed, memory cap and parameters of a solve, or of a part of it.

    Parameters
    ----------
    deadline
        When to end, in seconds of `time.perf_counter` of this process; infinite for no time limit.
    threads
        Number of threads, at least 1.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    max_memory
        Cap on the resident memory of this process and a solver program that it started, in GB (10**9 bytes);
        None for no cap.
    effort
        Limit in seconds, used where there is no deadline; infinite for no limit. The work done is counted and
        converted to seconds of one thread on a usual machine, so the limit is the same on every machine.
    params
        The numbers that tune the searches.
    halt
        An event by which another thread ends the work: once it is set, no time is left. None for no event.
    """

    deadline: float = inf
    threads: int = 1
    seed: int = 0
    max_memory: float | None = None
    effort: float = inf
    params: SolveParams = DEFAULTS
    halt: Event | None = field(default=None, compare=False)

    @property
    def endless(self) -> bool:
        """Whether there is no deadline."""
        return self.deadline == inf

    @property
    def limited(self) -> bool:
        """Whether there is a deadline or a limit of effort."""
        return not self.endless or self.effort < inf

    @property
    def left(self) -> float:
        """Seconds until the deadline, 0 after it or once `halt` is set; infinite without a deadline."""
        halted = self.halt is not None and self.halt.is_set()
        return 0.0 if halted else max(0.0, self.deadline - perf_counter())

    def check(self) -> None:
        """Raise a `TimeUpError` if no time is left."""
        if self.left <= 0:
            raise TimeUpError

    @property
    def seconds_for_solver(self) -> float:
        """Seconds until the deadline, made positive and finite as other solvers require."""
        return min(max(self.left, _SHORTEST), _LONGEST)

    def within(self, seconds: float) -> Budget:
        """Return the budget that ends in `seconds`, or at the deadline if that comes first."""
        return replace(self, deadline=min(self.deadline, perf_counter() + seconds))

    def shortened(self, seconds: float) -> Budget:
        """Return the budget with at most `seconds` left.

        They are seconds of wall time if the budget has a deadline, else seconds of effort.
        """
        return replace(self, effort=min(self.effort, seconds)) if self.endless else self.within(seconds)

    def part(self, share: float) -> Budget:
        """Return the budget that ends when a share of the time left has passed.

        `share` is above 0 and at most 1. A budget without a deadline still has none.
        """
        return self.within(share * self.left)

    def in_turn(self, count: int) -> Iterator[Budget]:
        """Yield the budgets of `count` pieces of work, each when the pieces before it have ended.

        Each piece may use an equal part of the time that is then left.
        """
        for k in range(count):
            yield self.part(1 / (count - k))

    def first_part(self, share: float, least: float) -> Budget:
        """Return the budget of work with which a search begins: a share of the time left, or `least` seconds.

        The longer of the two counts, so the work gets `least` seconds even if less time is left. A budget
        without a deadline still has none.
        """
        return (
            self if self.endless else replace(self, deadline=perf_counter() + max(least, share * self.left))
        )

    def with_deadline(self, seconds: float = _UNENDING) -> Budget:
        """Return the same budget if it has a deadline, else one that ends in `seconds`."""
        return self.within(seconds) if self.endless else self

    def on(self, threads: int) -> Budget:
        """Return the budget with another number of threads, at least 1."""
        return replace(self, threads=threads)

    def halted_by(self, halt: Event) -> Budget:
        """Return the budget that also ends when the event is set."""
        return replace(self, halt=halt)

    def reseeded(self, step: int) -> Budget:
        """Return the budget with the seed increased by `step`; after the last seed comes the first."""
        return replace(self, seed=(self.seed + step) % _SEEDS)


UNLIMITED = Budget()
"""A budget of one thread without any limit."""
