"""Clocks that tests set or count, so that what a time limit allows is the same on every machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Clock:
    """A clock that stands still until it is set forward, and may go on at every look."""

    def __init__(self, per_look: float = 0.0, now: float = 1000.0) -> None:
        self.now, self.per_look = now, per_look

    def __call__(self) -> float:
        self.now += self.per_look
        return self.now


@contextmanager
def counted_time(per_look: float = 0.002) -> Iterator[Clock]:
    """Let time pass only when the package looks at its clock, `per_look` seconds each time.

    Searches look after a fixed amount of work, so with one worker a time limit allows the same work on every
    machine, however busy it is. CP-SAT and HiGHS have clocks of their own.
    """
    real = time.perf_counter
    clock = Clock(per_look, real())

    def look() -> float:
        # the compiler looks, too, when it loads loops
        asking = sys._getframe(1).f_globals.get("__name__", "")
        return clock() if asking.partition(".")[0] == "tightpipe" else real()

    try:
        _replace(real, look)
        yield clock
    finally:
        _replace(look, real)


def calls_of(action: Callable[[], object]) -> int:
    """Return how many functions Python calls in an action: its work, which is the same on every machine."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def _replace(old: Callable[[], float], new: Callable[[], float]) -> None:
    """Put one clock in the place of another, in all modules of the package that are loaded by now."""
    time.perf_counter = new
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tightpipe" and vars(module).get("perf_counter") is old:
            module.perf_counter = new  # type: ignore[attr-defined]
