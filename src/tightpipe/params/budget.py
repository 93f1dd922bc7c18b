"""The limits of a solve (deadline or effort, threads, memory), its seed and its parameters.

A budget is made once, where a solve begins. All functions that work for the solve get this budget, or one
that is narrowed to a part of the time. The deadline is a point in time and not a duration, so no function has
to subtract the time that was already spent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from sys import float_info
from threading import Event
from time import perf_counter
from typing import TypedDict

from ..base.cores import usable_cores
from ..base.errors import InputError, check_int, store_plain
from .solve_params import DEFAULTS, SolveParams

_UNENDING = 600.0  # seconds for a search that would not end by itself
_SHORTEST, _LONGEST = 0.01, 1e8  # seconds; not every solver takes 0 or infinity
_SEEDS = 2**31  # number of seeds; solvers take integers of 32 bits with a sign


class TimeUpError(Exception):
    """Work that has no result before its end was given up, because the time of its budget `until` is up."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Deadline, threads, seed, memory cap and parameters of a solve, or of a part of it."""

    #: when to end, in seconds of `time.perf_counter` of this process; infinite for no time limit
    deadline: float = inf
    threads: int = 1  #: number of threads, at least 1
    seed: int = 0  #: seed of every random choice, 0 to 2**31 - 1
    #: cap on the resident memory of this process and a solver program that it started, in GB (10**9 bytes);
    #: None for no cap
    max_memory: float | None = None
    #: limit in seconds, used where there is no deadline; infinite for no limit. The work done is counted and
    #: converted to seconds of one thread on a usual machine, so the limit is the same on every machine.
    effort: float = inf
    params: SolveParams = DEFAULTS  #: the numbers that tune the searches
    #: an event by which another thread ends the work: once it is set, no time is left. None for no event.
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

    def later(self, seconds: float) -> Budget:
        """Return the budget that ends so many seconds later."""
        return replace(self, deadline=self.deadline + seconds)

    def shortened(self, seconds: float) -> Budget:
        """Return the budget with at most `seconds` left: of wall time if it has a deadline, else effort."""
        return replace(self, effort=min(self.effort, seconds)) if self.endless else self.within(seconds)

    def part(self, share: float) -> Budget:
        """Return the budget that ends after a share, up to 1, of the time left; without deadline itself."""
        return self.within(share * self.left)

    def in_turn(self, count: int) -> Iterator[Budget]:
        """Yield budgets of `count` pieces of work, each with an equal part of the time left at its begin."""
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

    def unlimited(self) -> Budget:
        """Return a budget of one thread without any limit, with the same parameters."""
        return Budget(params=self.params)

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


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= float_info.max  # which integers may exceed


class SolveOptions(TypedDict):
    """The options that `tightpipe.solve` and `tightpipe.plan` have in common, as keyword arguments."""

    time_limit: float | None
    workers: int | None
    seed: int
    params: SolveParams


@dataclass(frozen=True, slots=True)
class Allowance:
    """Limits and seed of one solve that has not begun; `begin` starts the clock of the time limit.

    Numbers out of range raise an InputError when it is made. Between that and `begin`, the solver is loaded
    and its inner loops are compiled, which so does not count towards the time limit.
    """

    #: wall seconds, at least 0; None for no limit. With 0, a solve returns the warm start and its bound.
    time_limit: float | None = None
    #: number of threads, 1 to 1024; None takes one for each core that the process may use. A solve with one
    #: worker is reproducible unless the time limit ends it.
    workers: int | None = None
    seed: int = 0  #: seed of every random choice, 0 to 2**31 - 1
    #: memory in GB (10**9 bytes), above 0, or None for no cap. When the resident memory of this process and
    #: of a solver program that it started reaches the cap, CP-SAT and MILP end with what they have found.
    #: Memory is measured a few times a second, so that it may exceed the cap for a moment. The cap does not
    #: apply to heuristics, improvement and shaving, whose need is small and known beforehand.
    max_memory: float | None = None
    #: a deterministic limit that replaces the time limit, in seconds above 0; None for no such limit. The
    #: work done is counted and converted to seconds of one thread on a usual machine; the clock is not read.
    #: So a solve with one worker gives the same result in every run and on every machine. The energetic
    #: bound before a search takes up to a share `best.energetic` of it, which comes on top.
    effort: float | None = None
    params: SolveParams = DEFAULTS  #: the numbers that tune the searches

    def __post_init__(self) -> None:
        store_plain(self)
        if not isinstance(self.params, SolveParams):
            raise InputError("must be SolveParams", key="params", value=self.params)
        limit, memory = self.time_limit, self.max_memory
        if limit is not None and not (_is_finite(limit) and limit >= 0):
            raise InputError("must be a number of seconds, at least 0", key="time_limit", value=limit)
        if memory is not None and not (_is_finite(memory) and memory > 0):
            raise InputError("must be a number of GB, above 0", key="max_memory", value=memory)
        if self.effort is not None and not (_is_finite(self.effort) and self.effort > 0):
            raise InputError("must be a number of seconds, above 0", key="effort", value=self.effort)
        if self.workers is not None:
            check_int("workers", self.workers, 1, 1024)
        check_int("seed", self.seed, 0, 2**31 - 1)

    @property
    def options(self) -> SolveOptions:
        """What solves and plans take as options: the time limit, the workers, the seed and the parameters."""
        return SolveOptions(
            time_limit=self.time_limit, workers=self.workers, seed=self.seed, params=self.params
        )

    @property
    def threads(self) -> int:
        """Number of threads to use: `workers`, or the number of usable cores where that is None."""
        return self.workers or usable_cores()

    def begin(self) -> Budget:
        """Return the budget of a solve that begins now."""
        endless = Budget(threads=self.threads, seed=self.seed, max_memory=self.max_memory, params=self.params)
        if self.effort is not None:
            return replace(endless, effort=self.effort)
        return endless.within(inf if self.time_limit is None else self.time_limit)
