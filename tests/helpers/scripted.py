"""Members of a portfolio that do what a generator of a test says."""

from __future__ import annotations

from collections.abc import Callable, Generator

from tightpipe.solver.engine.portfolio import Begin, Worker
from tightpipe.solver.outcome import FINISHED, Ended, Outcome, Worked

Script = Generator[float, None, Ended | None]
"""Works for one step before each yield, yields the effort of the step, and returns how the member ends."""


class _Scripted:
    def __init__(self, script: Script) -> None:
        self._script = script

    def step(self, _: Worker) -> Outcome:
        try:
            return Worked(next(self._script))
        except StopIteration as end:
            return end.value or FINISHED


def scripted(script: Callable[[Worker], Script]) -> Begin:
    """Return what begins a member that does what a generator says, which is called with its worker."""
    return lambda worker: _Scripted(script(worker))
