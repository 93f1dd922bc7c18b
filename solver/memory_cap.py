"""A cap on the memory that a solve takes from the computer."""

from __future__ import annotations

from contextlib import suppress
from math import inf

import psutil

GIGABYTE = 10**9


class MemoryCap:
    """The most resident memory that this process and the solver programs that it runs may take together.

    Parameters
    ----------
    gigabytes
        The cap, in units of 10**9 bytes; None for no cap.

    Notes
    -----
    The solver's loops look at the resident memory, and ask a solver that takes too much to stop. A limit on
    the address space would also count memory that idle threads have only reserved, and would end a solver
    before it could hand over its schedule. CP-SAT has a parameter ``max_memory_in_mb``, but does not keep it
    (or-tools issue 1944).
    """

    def __init__(self, gigabytes: float | None) -> None:
        self._gigabytes = gigabytes

    @property
    def reason(self) -> str:
        """The reason that a result gives where the cap ended its search early."""
        return f"the memory cap of {self._gigabytes:g} GB was hit"

    def left(self, *programs: int) -> float:
        """Return the bytes that are left under the cap, infinity without a cap.

        Parameters
        ----------
        *programs
            Ids of other processes whose memory counts too.
        """
        if self._gigabytes is None:
            return inf
        left = self._gigabytes * GIGABYTE - psutil.Process().memory_info().rss
        for process in programs:
            with suppress(psutil.Error):  # the process may just have ended
                left -= psutil.Process(process).memory_info().rss
        return left

    def hit(self, *programs: int) -> bool:
        """Return whether no memory is left under the cap; the parameters are those of `left`."""
        return self.left(*programs) <= 0

    def refusal(self, size: float) -> str:
        """Return why a model that takes `size` bytes is not built, the empty string if it fits."""
        left = self.left()
        if size <= left:
            return ""
        if left <= 0:
            return self.reason
        takes, free = (f"{amount / GIGABYTE:.2g} GB" for amount in (size, left))
        return f"the memory cap of {self._gigabytes:g} GB leaves {free}, and the model takes about {takes}"
