"""Options that every solver gets besides the instance: its limits, its seed and a progress callback."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from .errors import InputError
from .integers import check_int, store_plain
from .result import LogEntry

Progress = Callable[[LogEntry], None]


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _ignore(_: LogEntry) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one solve.

    Parameters
    ----------
    time_limit
        Wall seconds, at least 0; None for no limit. 0 returns the warm start with its bound.
    workers
        Number of threads, at least 1; None takes as many as the machine has cores. A solve with one worker
        is reproducible unless the time limit ends it.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    backend
        Name of the solver program behind a method that can use several, e.g. HiGHS or CBC; None takes the
        first one.
    max_memory
        Memory in GB (10**9 bytes), above 0, or None for no cap. When the resident memory of this process and
        of a solver program that it started reaches the cap, CP-SAT and MILP end with what they have found.
        Memory is measured a few times a second, so that it may exceed the cap for a moment. The cap does not
        apply to heuristics, improvement and shaving, whose need is small and known beforehand.
    progress
        Function that is called with a log entry for each new incumbent or bound.
    """

    time_limit: float | None = None
    workers: int | None = None
    seed: int = 0
    backend: str | None = None
    max_memory: float | None = None
    progress: Progress = _ignore

    def __post_init__(self) -> None:
        store_plain(self)
        limit, memory = self.time_limit, self.max_memory
        if limit is not None and not (_is_finite(limit) and limit >= 0):
            raise InputError("must be a number of seconds, at least 0", key="time_limit", value=limit)
        if memory is not None and not (_is_finite(memory) and memory > 0):
            raise InputError("must be a number of GB, above 0", key="max_memory", value=memory)
        if self.workers is not None:
            check_int("workers", self.workers, 1, 1024)
        check_int("seed", self.seed, 0, 2**31 - 1)

    @property
    def threads(self) -> int:
        """Number of threads to use: `workers`, or the number of cores where that is None."""
        return self.workers or os.cpu_count() or 1
