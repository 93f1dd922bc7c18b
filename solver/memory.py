"""A cap on memory, as the deadline is one on time."""

from __future__ import annotations

from contextlib import suppress
from math import inf

import psutil

GIGABYTE = 10**9


class MemoryCap:
    """The resident memory that this process and a backend's may take: `gigabytes` (None: no cap).

    Notes
    -----
    Resident memory is looked at, and a solver that takes too much is asked to stop. A limit on the address
    space would count what idle threads have only reserved, and end a solver without a chance to hand over
    what it has; and CP-SAT does not keep its own parameter ``max_memory_in_mb`` (or-tools issue 1944).
    """

    def __init__(self, gigabytes: float | None) -> None:
        self._gigabytes = gigabytes

    @property
    def reason(self) -> str:
        """What a result says that was cut short by it."""
        return f"the memory cap of {self._gigabytes:g} GB was hit"

    def left(self, *backends: int) -> float:
        """Return the bytes that are left under the cap; processes with these ids count too."""
        if self._gigabytes is None:
            return inf
        left = self._gigabytes * GIGABYTE - psutil.Process().memory_info().rss
        for process in backends:
            with suppress(psutil.Error):  # it has just ended
                left -= psutil.Process(process).memory_info().rss
        return left

    def hit(self, *backends: int) -> bool:
        """Whether nothing is left."""
        return self.left(*backends) <= 0

    def refusal(self, size: float) -> str:
        """Return why a model that takes `size` bytes is not built; empty if it fits."""
        left = self.left()
        if size <= left:
            return ""
        if left <= 0:
            return self.reason
        takes, free = (f"{amount / GIGABYTE:.2g} GB" for amount in (size, left))
        return f"the memory cap of {self._gigabytes:g} GB leaves {free}, and the model takes about {takes}"
