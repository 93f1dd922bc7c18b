"""What every solver is given besides the instance: limits, seed, and whom to tell about progress."""

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
    """Limits of one solve.

    Parameters
    ----------
    time_limit
        Wall seconds, at least 0; None for no limit. 0 returns the warm start with its bound.
    workers
        Threads, at least 1; None takes the machine's cores. One worker makes a solve reproducible
        as long as it is not the time limit that ends it.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    backend
        Solver behind a method that has several; None takes its first.
    max_memory
        Resident GB (10**9 bytes, above 0) of this process and a backend's at which CP-SAT and MILP end with
        what they have; None for no cap. Memory is looked at a few times a second, so that a solver may
        exceed the cap for a moment. What heuristics, improvement and shaving take is known beforehand and
        small: the cap is not for them.
    progress
        Called with each new incumbent or bound.
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
        """Number of threads to use."""
        return self.workers or os.cpu_count() or 1
