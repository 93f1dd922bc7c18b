"""The programs behind exact models: which one is loaded first, and how much memory they may take.

OR-Tools and highspy contain two versions of HiGHS with functions of the same names. PuLP loads highspy if it
can, and OR-Tools cannot be loaded after highspy. PuLP that is loaded after OR-Tools cannot load highspy, and
does not need it: HiGHS runs in a process of its own.
"""

from __future__ import annotations

import sys
from importlib import import_module
from math import inf

import psutil

from tightpipe.base.child import Child
from tightpipe.base.errors import InputError

from .outcome import End, Ended

CP_MODEL = "ortools.sat.python.cp_model"
GIGABYTE = 10**9


def import_cp_model() -> None:
    """Import CP-SAT's Python module; raise an InputError if highspy was loaded before."""
    try:
        import_module(CP_MODEL)
    except ImportError as error:
        if "highspy" not in sys.modules:
            raise
        rule = f"OR-Tools cannot be loaded after highspy, which PuLP loads: import {CP_MODEL} before them"
        raise InputError(rule) from error


class MemoryCap:
    """The most resident memory that this process and the solver programs that it runs may take together.

    - `gigabytes`: the cap, in units of 10**9 bytes; None for no cap.

    The solver's loops look at the resident memory, and ask a solver that takes too much to stop. A limit on
    the address space would also count memory that idle threads have only reserved, and would end a solver
    before it could hand over its schedule. CP-SAT has a parameter ``max_memory_in_mb``, but does not keep it
    (or-tools issue 1944).
    """

    def __init__(self, gigabytes: float | None) -> None:
        self._gigabytes = gigabytes

    @property
    def end(self) -> Ended:
        """The end of a search that the cap has ended early."""
        return Ended(End.CAPPED, f"the memory cap of {self._gigabytes:g} GB was hit")

    def left(self, *programs: Child) -> float:
        """Return the bytes left under the cap, with these other processes counted; infinity without a cap."""
        if self._gigabytes is None:
            return inf
        taken = psutil.Process().memory_info().rss + sum(program.memory for program in programs)
        return self._gigabytes * GIGABYTE - taken

    def hit(self, *programs: Child) -> bool:
        """Return whether no memory is left under the cap; the parameters are those of `left`."""
        return self.left(*programs) <= 0

    def refusal(self, size: float) -> Ended | None:
        """Return the end of a search whose model takes `size` bytes; None if the model fits under the cap."""
        left = self.left()
        if size <= left:
            return None
        if left <= 0:
            return self.end
        takes, free = (f"{amount / GIGABYTE:.2g} GB" for amount in (size, left))
        text = f"the memory cap of {self._gigabytes:g} GB leaves {free}, and the model takes about {takes}"
        return Ended(End.CAPPED, text)
