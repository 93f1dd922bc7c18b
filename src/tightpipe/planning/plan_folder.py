"""A folder keeps each plan of a comparison in a file of its own, as soon as it is found.

A comparison that is run again reuses the plans already in its folder, so an interrupted one continues where
it stopped. All plans of a folder were found under the same conditions, which are in a file beside them. A
search that found no plan leaves no file, so the next run repeats it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from ..core.allowance import Allowance
from ..core.engine_version import engine_version
from ..core.errors import InputError
from ..core.files import is_standard_output, write_text
from ..core.instance_file import read_json
from ..core.interruption import held_back, raise_again
from ..core.result import Status
from .plan import Plan, no_plan
from .plan_file import load_plan, save_plan
from .problem import PlanningProblem

_CONDITIONS = "conditions.json"


class PlanFolder:
    """A folder with one file per plan, and a file with the conditions under which they were found.

    Parameters
    ----------
    path
        The folder; it is made if it is not there.
    allowance
        The time limit, threads, seed and parameters of each search.

    Raises
    ------
    InputError
        If the folder cannot be made or written, its plans were found under other conditions, or the path
        stands for standard output.
    """

    def __init__(self, path: str | Path, allowance: Allowance) -> None:
        self.path = Path(path)
        if is_standard_output(path):
            raise InputError(
                "must be a folder: each plan has a file of its own", key="output", value=str(path)
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", source=str(path)) from None
        self._agree(_conditions(allowance))

    def _agree(self, conditions: dict[str, object]) -> None:
        """Write the conditions into a new folder, or check that an old folder has the same ones."""
        file = self.path / _CONDITIONS
        if not file.exists():
            write_text(file, json.dumps(conditions) + "\n")
            return
        there = read_json(file)
        for key, value in conditions.items():
            kept = there.get(key) if isinstance(there, dict) else None
            if kept != value:
                rule = f"the plans of this folder were found with {kept!r}; give another folder"
                raise InputError(rule, key=key, value=value, source=str(file))

    def file(self, name: str) -> Path:
        """Return the path of the file that keeps the plan of this name."""
        return self.path / f"{name}.json"

    def get(self, name: str, problem: PlanningProblem) -> Plan | None:
        """Return the plan kept under a name; None if there is none or if the plan is for another problem.

        Raises
        ------
        InputError
            If there is a file of this name that cannot be read or is no plan file.
        """
        if not self.file(name).exists():
            return None
        found = load_plan(self.file(name))
        return found if found.problem == problem else None

    def put(self, name: str, plan: Plan) -> None:
        """Keep a plan under a name, in place of an earlier one; do nothing if it has no schedule."""
        if plan.schedule is not None:
            with held_back():
                save_plan(plan, self.file(name))


def _conditions(allowance: Allowance) -> dict[str, object]:
    limits = {"time_limit": allowance.time_limit, "workers": allowance.workers, "seed": allowance.seed}
    return {"engine": engine_version(), **limits, "params": allowance.params.changed()}


def kept_plan(
    folder: PlanFolder | None, name: str, problem: PlanningProblem, find: Callable[[], Plan]
) -> Plan:
    """Return the plan that a folder keeps under a name, or else find it and keep it.

    Parameters
    ----------
    folder
        The folder; None to keep nothing.
    name
        Name of the plan in the folder.
    problem
        The planning problem; a plan of another problem is not taken.
    find
        Function that finds the plan. If a signal ends the search early, the plan is not kept, and the
        exception of the signal is raised. If the function raises an `InputError`, the result is a plan
        without a schedule, with the error as its reason.
    """
    there = None if folder is None else folder.get(name, problem)
    if there is not None:
        return there
    try:
        found = find()
    except InputError as error:
        return no_plan(problem, str(error), status=Status.UNKNOWN)
    raise_again(found.reason)
    if folder is not None:
        folder.put(name, found)
    return found
