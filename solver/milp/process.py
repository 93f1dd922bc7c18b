"""Runs of backends as separate processes: their files, their limits, and what Ctrl-C does.

There are two reasons for separate processes. A solver that is killed or crashes then does not end this
process. And OR-Tools and highspy contain two versions of HiGHS under one name; one process cannot load both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tightpipe.core.budget import Budget
from tightpipe.core.interruption import reason_of

from ..memory_cap import MemoryCap
from .linear import Variable
from .model import MilpModel
from .supervisor import Supervisor

POLL = 0.2  # seconds between two readings of the process's output
OUT_OF_TIME = "out of time"
_LATE = 1.0  # seconds beyond its time limit after which a process is asked to stop
_GRACE = 3.0  # seconds that the process then has to write what it has found


class ModelFiles:
    """The files of one run of a backend.

    Parameters
    ----------
    model
        The model, which is written as an MPS file.
    folder
        The folder of the files.

    Attributes
    ----------
    problem
        The PuLP problem of the model.
    mps, start, solution
        The paths of the model, of the starting solution and of the backend's solution.
    log, errors
        The paths of the standard output and of the standard error of the backend's process.
    names
        What PuLP's ``writeMPS`` returns: the variables, and for the MPS file a table of column names, a table
        of row names and the name of the objective.
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
        """Return the last line that the process wrote to `errors`, or else to `log`."""
        text = self.errors.read_text(errors="replace") or self.log.read_text(errors="replace")
        return (text.strip().splitlines() or [""])[-1][:200]


def run_process(
    command: list[str],
    supervisor: Supervisor,
    files: ModelFiles,
    budget: Budget,
    look: Callable[[], None],
) -> tuple[int, str]:
    """Run a process until it ends, hits a limit, or Ctrl-C is pressed.

    A process that does not stop when it is asked to is killed when the supervisor's block ends.

    Parameters
    ----------
    command
        The program and its arguments.
    supervisor
        Starts and stops the process.
    files
        The files of the run. The output of the process goes to `log`, and its errors go to `errors`.
    budget
        The deadline, which the process is also given, and the memory cap, which only this function enforces.
    look
        Called now and then, and once at the end, to read what the process has written.

    Returns
    -------
    code
        The exit status of the process; 0 if the process has been asked to stop and has not ended yet.
    stopped
        Why the process was stopped, or the empty string if it ended by itself.
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
    """Wait until the process ends or hits a limit; return why it has to be stopped, or the empty string."""
    cap = MemoryCap(budget.max_memory)
    while budget.left > 0:
        if supervisor.ended(min(POLL, budget.left)):
            return ""
        look()
        if cap.hit(process):
            return cap.end.text
    return "" if supervisor.ended(_LATE) else OUT_OF_TIME
