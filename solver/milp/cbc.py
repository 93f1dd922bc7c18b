"""The backend CBC, a program that comes with PuLP."""

from __future__ import annotations

import re

import pulp

from tightpipe.core.budget import Budget

from .backend import OBJECTIVE_GAP, Watch
from .model import MilpModel
from .process import OUT_OF_TIME, ModelFiles, run_process
from .supervisor import Supervisor

_NUMBER = r"([-+\d.e]+)"
_BOUND = re.compile(rf"best possible {_NUMBER}|^Lower bound:\s+{_NUMBER}", re.MULTILINE)
_OPTIMAL = re.compile(rf"^Result - Optimal solution found\s+Objective value:\s+{_NUMBER}", re.MULTILINE)
# Matches the first line of a solution file with an integer solution. Other solution files begin with "Stopped
# on time (no integer solution - continuous used)" or with "Integer infeasible". CBC also writes the latter if
# its time is up while it looks for cuts.
_INTEGER = re.compile(r"Optimal|Stopped(?!.*no integer solution)")
_LARGEST = 1e40  # CBC writes 1e+50 where it has no bound


def run_cbc(model: MilpModel, budget: Budget, watch: Watch) -> str:
    """Solve a model with CBC, and return why it ended early, as a `Backend` does.

    CBC gets one thread, because with several threads it sometimes waits forever.
    """
    with Supervisor() as supervisor:
        return _Run(model, budget, watch, supervisor).run()


class _Run:
    """One run of CBC, whose files lie in the supervisor's folder."""

    def __init__(self, model: MilpModel, budget: Budget, watch: Watch, supervisor: Supervisor) -> None:
        self.files, self.supervisor = ModelFiles(model, supervisor.folder), supervisor
        self.budget, self.watch = budget, watch
        self.pulp = pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False)

    def run(self) -> str:
        """Run CBC, and return why it ended early, or the empty string if it did not."""
        self.pulp.writesol(str(self.files.start), self.files.problem, *self.files.names[:3])
        code, stopped = run_process(self._command(), self.supervisor, self.files, self.budget, self._look)
        written = self.files.solution.exists()
        if written:
            self._take_solution()
        if not stopped and (code < 0 or not written):
            return f"CBC ended with exit status {code}: {self.files.last_line()}"
        return "" if stopped == OUT_OF_TIME else stopped

    def _command(self) -> list[str]:
        settings = {
            "mips": self.files.start,
            "timeMode": "elapsed",
            "sec": f"{self.budget.seconds_for_solver:.2f}",
            "randomCbcSeed": self.budget.seed,
            "randomSeed": self.budget.seed,
            "ratio": 0,
            "allow": OBJECTIVE_GAP,
        }
        pairs = [word for key, value in settings.items() for word in (f"-{key}", str(value))]
        files = self.files
        return [self.pulp.path, str(files.mps), *pairs, "-solve", "-solution", str(files.solution)]

    def _look(self) -> None:
        """Pass the largest bound in the log on to the watch; every bound in the log is valid."""
        text = self.files.log.read_text(errors="replace")
        found = [*("".join(groups) for groups in _BOUND.findall(text)), *_OPTIMAL.findall(text)]
        self.watch.bound(max((n for n in map(float, found) if n < _LARGEST), default=float("-inf")))

    def _take_solution(self) -> None:
        """Pass the solution in CBC's file on to the watch, which checks it.

        If time is up before CBC has an integer solution, CBC writes a fractional one, which is ignored. If
        CBC is killed, the file may be incomplete; a file that cannot be read is ignored too.
        """
        files = self.files
        if not _INTEGER.match(files.solution.read_text().split("\n", 1)[0]):
            return
        try:
            values = self.pulp.readsol_MPS(str(files.solution), files.problem, *files.names[:3])[1]
        except (LookupError, ValueError):
            return
        self.watch.solution(lambda variable: float(values[variable.name]))
