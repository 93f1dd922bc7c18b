"""Plan files in JSON, whose figures are computed anew when a file is read, and folders of such files.

A plan file holds the problem, the plan and its figures. `load_plan` computes the figures from the problem and
the plan, and raises an error if the file has other ones. Only the entries about the search and the proof are
taken on trust: `method`, `bound`, `proof`, `seconds`, `considered`, `log` and `reason`.

A comparison that is run again reuses the plans already in its folder, all of which were found under the same
conditions. A search that found no plan leaves no file, so the next run repeats it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ..base.errors import (
    LARGEST,
    InputError,
    NoScheduleError,
    about_entry,
    about_file,
    check_choice,
    check_int,
    check_number,
    check_text,
)
from ..base.files import check_keys, check_kind, is_standard_output, read_data, write_text
from ..base.interruption import held_back, raise_again
from ..base.sources import planner_version
from ..model.metrics import bubble_rate, busy_times, cost, costs, imbalance
from ..model.result import LogEntry, Proof, Status
from ..model.schedule import Schedule
from ..model.schedule_file import schedule_from_dict, schedule_to_dict
from ..model.validate import validate
from ..params.budget import Allowance
from ..params.solve_params import params_from_dict
from .candidate import (
    CANDIDATE_KEYS,
    Candidate,
    candidate_from_dict,
    candidate_to_dict,
    check_candidate,
    entries,
    gathers_again,
    instance_of,
)
from .fixed_orders import orders_of
from .gathers import step_ticks
from .problem import PlanningProblem
from .problem_file import problem_from_dict, problem_to_dict
from .result import Plan, no_plan

_Part = TypeVar("_Part")

_FIGURES = (
    *("status", "cost", "objective", "costs", "bound", "gap", "tick", "step_time", "unit"),
    *("microbatches_per_second", "tokens_per_second"),
    *("bubble_rate", "imbalance", "peak_memory", "memory", "microbatches"),
)
_CLAIMS = ("method", "proof", "reason", "seconds", "considered", "log")
_OPTIONAL = (
    "offload",
    "host_memory",
    "resident",
    "gathers",
)  # where the cluster has a host, or stages are gathered
_KEYS = (*_FIGURES, *CANDIDATE_KEYS, *_CLAIMS, "problem", "schedule")


def save_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan to a file.

    Raises
    ------
    NoScheduleError
        If there is no plan; the message says why.
    InputError
        If the candidate is not in the search space, the schedule is for another instance or breaks a rule, a
        fraction in the problem equals no decimal number, or the file cannot be written.
    """
    if plan.candidate is None or plan.schedule is None:
        raise NoScheduleError(f"{plan.status}: {plan.reason}")
    _check_plan(plan.problem, plan.candidate, plan.schedule)
    asked = problem_to_dict(plan.problem)
    # a bound of plans is one of this instance only where all orders may be chosen, and exchanges after the
    # schedule or gathers of stages once more are no part of what bounds the plan
    fixed = orders_of(plan.problem, plan.candidate.placement)
    claims = plan.bound is not None and not fixed and not gathers_again(plan.problem, plan.candidate)
    bound = min(plan.bound, cost(plan.schedule)) if claims and plan.bound is not None else None
    if problem_from_dict(asked) != plan.problem:
        rule = "has a fraction that no decimal number is equal to; the file would be of another problem"
        raise InputError(rule, key="problem.cluster", value=asked["cluster"])
    content = {
        **plan_to_dict(plan),
        "problem": asked,
        "schedule": schedule_to_dict(plan.schedule, method=plan.method, bound=bound, params=plan.params),
    }
    write_text(path, json.dumps(content) + "\n")


def load_plan(path: str | Path) -> Plan:
    """Return the plan of a file, after its figures have been computed anew and compared with the file.

    Raises
    ------
    InputError
        If the file cannot be read or is no plan, its candidate is not in the search space of its problem, its
        schedule is for another instance or breaks a rule, or a figure differs from the plan's.
    """
    data = read_data(path)
    with about_file(path):
        check_kind(data, "plan")
        check_keys(data, _KEYS, (*_OPTIONAL, "params"))
        plan = _plan_from_dict(data)
        _check_figures(plan, data)
    return plan


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return the figures of a plan as plain data, without the problem and the schedule.

    Figures that need a schedule are None if the plan has none. `costs` has the cost of the schedule under
    each objective. Cost and bound are in ticks, each of which takes the time `tick`, and `step_time` is the
    time of the cost in `unit`. Memory is in bytes, and the gap, the bubble rate and the imbalance are
    fractions. `params` is there only if some parameters were not the defaults, and `offload`, with what
    leaves each stage, and `host_memory` only if the cluster has a host, and `resident` and `gathers` only if
    stages are gathered.
    """
    schedule, memory = plan.schedule, plan.memory
    away = None if plan.offload is None else [asdict(stage) for stage in plan.offload]
    kept = {"resident": plan.candidate and plan.candidate.resident, "gathers": plan.gathers}
    gathered = kept if plan.problem.cluster.sharding.gathered else {}
    of_host = {} if plan.problem.cluster.host is None else {"offload": away, "host_memory": plan.host_memory}
    return {
        "status": str(plan.status),
        "method": plan.method,
        "cost": plan.cost,
        "objective": str(plan.problem.space.objective),
        "costs": None if schedule is None else costs(schedule),
        "bound": plan.bound,
        "proof": None if plan.proof is None else str(plan.proof),
        "gap": plan.gap,
        **candidate_to_dict(plan.candidate),
        "microbatches": plan.problem.batch.microbatches,
        "tick": str(plan.problem.tick),
        "step_time": plan.step_time,
        "unit": plan.problem.tick.unit,
        "microbatches_per_second": plan.microbatches_per_second,
        "tokens_per_second": plan.tokens_per_second,
        "bubble_rate": None if schedule is None else bubble_rate(schedule),
        "imbalance": None if schedule is None else imbalance(busy_times(schedule)),
        "peak_memory": plan.peak_memory,
        "memory": None if memory is None else [asdict(device) for device in memory],
        **of_host,
        **gathered,
        "reason": plan.reason,
        "seconds": round(plan.seconds, 3),
        "considered": plan.considered,
        "log": [{"seconds": round(e.seconds, 3), "cost": e.cost, "bound": e.bound} for e in plan.log],
        **plan.params.record(),
    }


def _plan_from_dict(data: dict[str, Any]) -> Plan:
    problem = _inside("problem", problem_from_dict, data)
    candidate = candidate_from_dict(data, problem)
    schedule = _inside("schedule", schedule_from_dict, data).schedule
    _check_plan(problem, candidate, schedule)
    return Plan(
        problem,
        Status(check_choice("status", data["status"], *Status)),
        candidate,
        schedule,
        check_text("method", data["method"]),
        None if data["bound"] is None else check_int("bound", data["bound"], 0),
        None if data["proof"] is None else Proof(check_choice("proof", data["proof"], *Proof)),
        check_number("seconds", data["seconds"], 0, LARGEST),
        check_int("considered", data["considered"], 0),
        tuple(_entry(f"log[{i}]", entry) for i, entry in enumerate(entries(data, "log"))),
        check_text("reason", data["reason"]),
        _inside("params", params_from_dict, {"params": data.get("params", {})}),
    )


def _inside(key: str, read: Callable[[Any], _Part], data: dict[str, Any]) -> _Part:
    """Return what `read` makes of the value of a key.

    If `read` raises an error about a key inside this value, the error gets the whole path of that key.
    """
    with about_entry(key):
        return read(data[key])


def _check_plan(problem: PlanningProblem, candidate: Candidate, schedule: Schedule) -> None:
    """Raise an error unless the candidate is in the search space and the schedule is a valid one for it."""
    check_candidate(problem, candidate)
    if schedule.instance != instance_of(problem, candidate):
        raise InputError("is not the one that follows from problem and stages", key="schedule.instance")
    violations = validate(schedule.instance, schedule)
    if violations:
        raise InputError(f"the schedule is invalid: {violations[0]}", key="schedule")
    step_ticks(problem, candidate, schedule)  # which raises an error if an operation comes before its gather


def _check_figures(plan: Plan, data: dict[str, Any]) -> None:
    """Raise an error if a figure in the file differs from the plan's, or if the bound is above the cost."""
    if plan.cost is not None and plan.bound is not None and plan.bound > plan.cost:
        raise InputError(f"must be at most the cost, {plan.cost}", key="bound", value=plan.bound)
    status = Status.OPTIMAL if plan.cost == plan.bound else Status.FEASIBLE
    figures = {**plan_to_dict(plan), "status": str(status)}
    for key in (*_FIGURES, *CANDIDATE_KEYS, *_OPTIONAL):
        if data.get(key) != figures.get(key):
            rule = f"must be {figures.get(key)!r}, as it follows from the plan"
            raise InputError(rule, key=key, value=data.get(key))


def _entry(key: str, entry: Any) -> LogEntry:
    check_keys(entry, ("seconds", "cost", "bound"), (), key)
    cost, bound = (
        None if entry[name] is None else check_int(f"{key}.{name}", entry[name]) for name in ("cost", "bound")
    )
    return LogEntry(check_number(f"{key}.seconds", entry["seconds"], 0, LARGEST), cost, bound)


_CONDITIONS = "conditions.json"


class PlanFolder:
    """A folder with one file per plan, and a file with the conditions under which they were found.

    It is made if it is not there, and gets the conditions of an `allowance`: the time limit, threads, seed
    and parameters of each search. An `InputError` says where the plans were found under other conditions.
    """

    def __init__(self, path: str | Path, allowance: Allowance) -> None:
        self.path = Path(path)
        if is_standard_output(path):
            rule = "must be a folder: each plan has a file of its own"
            raise InputError(rule, key="output", value=str(path))
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be made: {error.strerror}", source=str(path)) from None
        limits = {"time_limit": allowance.time_limit, "workers": allowance.workers, "seed": allowance.seed}
        self._agree({"engine": planner_version(), **limits, "params": allowance.params.changed()})

    def _agree(self, conditions: dict[str, object]) -> None:
        """Write the conditions into a new folder, or check that an old folder has the same ones."""
        file = self.path / _CONDITIONS
        if not file.exists():
            write_text(file, json.dumps(conditions) + "\n")
            return
        there = read_data(file)
        for key, value in conditions.items():
            kept = there.get(key) if isinstance(there, dict) else None
            if kept != value:
                rule = f"the plans of this folder were found with {kept!r}; give another folder"
                raise InputError(rule, key=key, value=value, source=str(file))

    def file(self, name: str) -> Path:
        """Return the path of the file that keeps the plan of this name."""
        return self.path / f"{name}.json"

    def get(self, name: str, problem: PlanningProblem) -> Plan | None:
        """Return the plan kept under a name; None if there is none or if the plan is for another problem."""
        if not self.file(name).exists():
            return None
        found = load_plan(self.file(name))
        return found if found.problem == problem else None

    def put(self, name: str, plan: Plan) -> None:
        """Keep a plan under a name, in place of an earlier one; do nothing if it has no schedule."""
        if plan.schedule is not None:
            with held_back():
                save_plan(plan, self.file(name))


def kept_plan(
    folder: PlanFolder | None, name: str, problem: PlanningProblem, find: Callable[[], Plan]
) -> Plan:
    """Return the plan of a problem that a folder keeps under a name, or else `find` it and keep it.

    If a signal ends the search early, the plan is not kept, and the exception of the signal is raised. After
    an `InputError` the result is a plan without a schedule, with the error as its reason.
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
