"""Run a backend as a process of its own: its files, its limits, Ctrl-C.

Two reasons. A solver that is killed or crashes takes nothing with it, and the libraries of OR-Tools and
highspy, two versions of HiGHS under one name, cannot be loaded by the same process.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tightpipe.core.budget import Budget
from tightpipe.core.interruption import reason_of

from ..memory import MemoryCap
from .linear import Variable
from .model import MilpModel
from .supervisor import Supervisor

POLL = 0.2  # seconds between two looks at what the process has written
OUT_OF_TIME = "out of time"
_LATE = 1.0  # seconds over its time limit after which a process is told to stop
_GRACE = 3.0  # seconds that it has then to write what it has


class ModelFiles:
    """The files of one run.

    Parameters
    ----------
    model
        Written as MPS.
    folder
        Where they lie.
    """

    def __init__(self, model: MilpModel, folder: Path) -> None:
        self.problem = model.problem
        self.mps, self.start, self.solution, self.log, self.errors = (
            folder / name for name in ("model.mps", "start", "solution", "log", "errors")
        )
        self.names: Any = self.problem.writeMPS(str(self.mps), rename=1)

    def column(self, variable: Variable) -> str:
        """Return the name of a variable in the MPS file."""
        return str(self.names[1][variable.name])

    def last_line(self) -> str:
        """Return the last line of what the process wrote about its troubles."""
        text = self.errors.read_text(errors="replace") or self.log.read_text(errors="replace")
        return (text.strip().splitlines() or [""])[-1][:200]


def run_process(
    command: list[str],
    supervisor: Supervisor,
    files: ModelFiles,
    budget: Budget,
    look: Callable[[], None],
) -> tuple[int, str]:
    """Run until the process ends or a limit is hit; return its exit status and why it was stopped, else "".

    One that does not stop when it is asked to is killed when the supervisor's block ends.

    Parameters
    ----------
    command
        Program and arguments.
    supervisor
        Runs it.
    files
        The process writes to `log` and `errors`.
    budget
        Its deadline, which the process has been told too, and its memory cap, which it has not.
    look
        Called now and then, and once at the end, to read what the process has written.
    """
    process = supervisor.start(command, files.log, files.errors)
    try:
        stopped = _watch(supervisor, process, budget, look)
    except KeyboardInterrupt as stop:
        stopped = reason_of(stop)
    if stopped:
        supervisor.stop()
        supervisor.ended(_GRACE)
    look()
    return supervisor.code or 0, stopped


def _watch(supervisor: Supervisor, process: int, budget: Budget, look: Callable[[], None]) -> str:
    """Wait for the end of the process, or until it has to be stopped; return why, else ""."""
    cap = MemoryCap(budget.max_memory)
    while budget.left > 0:
        if supervisor.ended(min(POLL, budget.left)):
            return ""
        look()
        if cap.hit(process):
            return cap.reason
    return "" if supervisor.ended(_LATE) else OUT_OF_TIME
