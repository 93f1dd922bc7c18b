"""What every solver is given besides the instance: limits, seed, and whom to tell about progress."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from .errors import InputError
from .instance import check_int
from .result import LogEntry

Progress = Callable[[LogEntry], None]


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
    progress
        Called with each new incumbent or bound.
    """

    time_limit: float | None = None
    workers: int | None = None
    seed: int = 0
    backend: str | None = None
    progress: Progress = _ignore

    def __post_init__(self) -> None:
        limit = self.time_limit
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if limit is not None and not (number and 0 <= limit < float("inf")):
            raise InputError("must be a number of seconds, at least 0", key="time_limit", value=limit)
        if self.workers is not None:
            check_int("workers", self.workers, 1, 1024)
        check_int("seed", self.seed, 0, 2**31 - 1)

    @property
    def threads(self) -> int:
        """Number of threads to use."""
        return self.workers or os.cpu_count() or 1
