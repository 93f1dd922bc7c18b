"""A stopwatch with a limit."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from tightpipe.core.options import Options

LONGEST = 1e8  # seconds; what solvers are told where there is no limit


class Clock:
    """Time since its making, and what is left of `limit` seconds (None: no limit)."""

    def __init__(self, limit: float | None) -> None:
        self._begun = perf_counter()
        self._limit = limit

    @property
    def elapsed(self) -> float:
        """Seconds so far."""
        return perf_counter() - self._begun

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return float("inf") if self._limit is None else max(0.0, self._limit - self.elapsed)

    def part(self, share: float) -> Clock:
        """Return a clock that ends when `share` of what is left has passed."""
        return Clock(None if self._limit is None else share * self.left)

    def limit(self, options: Options) -> Options:
        """Return the options with what is left as their time limit."""
        return options if self._limit is None else replace(options, time_limit=self.left)
