"""What a caller allows one solve, as plain numbers: checked before anything begins, and kept in tables."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import inf, isfinite

from .budget import Budget
from .errors import InputError
from .integers import check_int, store_plain


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Options and seed of one solve that has not begun; `begin` starts its time.

    Loading a solver and compiling its inner loops comes between the two: a number that is out of range is
    refused before it, and what it takes is not charged to the time limit.

    Parameters
    ----------
    time_limit
        Wall seconds, at least 0; None for no limit. 0 returns the warm start with its bound.
    workers
        Number of threads, 1 to 1024; None takes as many as the machine has cores. A solve with one worker
        is reproducible unless the time limit ends it.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    max_memory
        Memory in GB (10**9 bytes), above 0, or None for no cap. When the resident memory of this process and
        of a solver program that it started reaches the cap, CP-SAT and MILP end with what they have found.
        Memory is measured a few times a second, so that it may exceed the cap for a moment. The cap does not
        apply to heuristics, improvement and shaving, whose need is small and known beforehand.
    effort
        Seconds of work of one thread on a usual machine, above 0, in place of a time limit; None for none.
        They are counted and not measured, so that a solve with one worker gives the same result in every run
        and on every machine.

    Raises
    ------
    InputError
        If a number is out of its range; the message names it and its value.
    """

    time_limit: float | None = None
    workers: int | None = None
    seed: int = 0
    max_memory: float | None = None
    effort: float | None = None

    def __post_init__(self) -> None:
        store_plain(self)
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
    def threads(self) -> int:
        """Number of threads to use: `workers`, or the number of cores where that is None."""
        return self.workers or os.cpu_count() or 1

    def begin(self) -> Budget:
        """Return the budget of a solve that begins now."""
        endless = Budget(threads=self.threads, seed=self.seed, max_memory=self.max_memory)
        if self.effort is not None:
            return replace(endless, effort=self.effort)
        return endless.within(inf if self.time_limit is None else self.time_limit)
