"""The backend HiGHS, through its Python interface highspy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tightpipe.core.budget import Budget

from .backend import OBJECTIVE_GAP, Watch
from .model import MilpModel
from .process import OUT_OF_TIME, ModelFiles, run_process
from .supervisor import Supervisor

_PROGRAM = Path(__file__).with_name("highs_program.py")


def run_highs(model: MilpModel, budget: Budget, watch: Watch) -> str:
    """Solve a model with HiGHS, and return why it ended early, as a `Backend` does."""
    with Supervisor() as supervisor:
        return _Run(model, budget, watch, supervisor).run()


class _Run:
    """One run of HiGHS, whose files lie in the supervisor's folder."""

    def __init__(self, model: MilpModel, budget: Budget, watch: Watch, supervisor: Supervisor) -> None:
        self.files, self.supervisor = ModelFiles(model, supervisor.folder), supervisor
        self.budget, self.watch = budget, watch
        self.read = 0
        self.status = ""

    def run(self) -> str:
        """Run HiGHS, and return why it ended early, or the empty string if it did not."""
        start = {self.files.column(v): v.varValue for v in self.files.problem.variables()}
        settings = {
            "time_limit": self.budget.seconds_for_solver,
            "threads": self.budget.threads,
            "random_seed": self.budget.seed,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": OBJECTIVE_GAP,
        }
        self.files.start.write_text(json.dumps({"start": start, "options": settings}))
        command = [sys.executable, "-P", str(_PROGRAM), str(self.files.mps), str(self.files.start)]
        code, stopped = run_process(command, self.supervisor, self.files, self.budget, self._look)
        if stopped:
            return "" if stopped == OUT_OF_TIME else stopped
        if self.status not in ("Optimal", "Time limit reached"):
            return f"HiGHS ended with {self.status or f'exit status {code}'}: {self.files.last_line()}"
        return ""

    def _look(self) -> None:
        """Read the complete new lines of the log, each a JSON object, and report them to the watch."""
        with self.files.log.open() as log:
            log.seek(self.read)
            new = log.read()
        whole = new[: new.rfind("\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            self._take(**json.loads(line))

    def _take(
        self, bound: float | None = None, solution: dict[str, float] | None = None, status: str = ""
    ) -> None:
        self.status = status or self.status
        if bound is not None:
            self.watch.bound(bound)
        if solution is not None:
            self.watch.solution(lambda variable: solution.get(self.files.column(variable), 0.0))
