"""An experiment has a task for every combination of its axes' values; equal tasks count once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

from ...core.activations import memory_of_1f1b
from ...core.errors import InputError
from ...core.instance import Instance, Objective
from ...settings import with_median_costs
from ...solving.methods import Method, find_method
from .axes import Change
from .experiment import Experiment, Problem
from .experiment_file import located
from .row import Row
from .task import Task, make_task

BEST = "best"
"""The warm start of a search that starts from the best schedule that is known."""


def tasks_of(experiment: Experiment, path: str | Path) -> list[Task]:
    """Return the experiment's tasks.

    An axis that means nothing to a method, such as the seed to a heuristic, does not multiply its solves.

    Raises
    ------
    InputError
        If a combination makes no instance, or a method does not schedule an instance's placement. The
        message names the line in `path`, the experiment's file.
    """
    try:
        return combine(experiment)
    except InputError as error:
        raise located(error, path) from None


def combine(experiment: Experiment) -> list[Task]:
    """Return the tasks of an experiment, which need not come from a file.

    Raises
    ------
    InputError
        As in `tasks_of`, but the message names the axis and no line.
    """
    tasks = {task.row.key: task for task in _combine(experiment)}
    return [_following(task, tasks) for task in tasks.values()]


def _following(task: Task, tasks: Mapping[str, Task]) -> Task:
    """Let a search for the best span start from the schedule of the same search for the best makespan, too.

    No span of a schedule exceeds its makespan. So with that start, the result of the one is never worse than
    the result of the other. A task that does not start from the best schedule stays as it is.
    """
    if task.row.warm_start != BEST or task.row.objective != Objective.DEVICE_SPAN:
        return task
    other = tasks.get(task.with_makespan().row.key)
    return task if other is None else task.following(other)


def _combine(experiment: Experiment) -> Iterator[Task]:
    methods = [find_method(name) for name in experiment.methods]
    axes = ("devices", "microbatches", "uneven", "comm", "memory", "objectives")
    changes = list(product(*(getattr(experiment, axis) for axis in axes)))
    for problem, chosen in product(experiment.problems, changes):
        for method in methods:
            instance = problem.make(_placement(problem, method))
            for axis, change in zip(axes, chosen, strict=True):
                instance = _apply(axis, change, instance, problem)
            labels = dict(zip(axes, (change.label for change in chosen), strict=True))
            yield from _solves(experiment, problem, labels, method, instance)


def _placement(problem: Problem, method: Method) -> str:
    """Return the name of the placement in which a method solves a problem.

    An instance file states its placement. A published setting gets the placement ``v`` or, if the method does
    not schedule ``v``, the method's first placement.
    """
    if problem.placement is None:
        return "v" if "v" in method.placements else method.placements[0]
    if problem.placement not in method.placements:
        rule = f"schedules placement {', '.join(method.placements)}; {problem.name} has {problem.placement}"
        raise InputError(rule, key="methods", value=method.name)
    return problem.placement


def _apply(axis: str, change: Change, instance: Instance, problem: Problem) -> Instance:
    try:
        return change.apply(instance)
    except InputError as error:
        rule = f"does not fit {problem.name}: {error}"
        raise InputError(rule, key=axis, value=change.label) from None


def _solves(
    experiment: Experiment, problem: Problem, labels: dict[str, str], method: Method, instance: Instance
) -> Iterator[Task]:
    searches = method.kind != "heuristic"
    for costs, warm_start, limit, seed in product(
        experiment.costs, experiment.warm_starts, experiment.time_limits, experiment.seeds
    ):
        shown = with_median_costs(instance) if costs == "median" else None
        if shown == instance and not experiment.keep_equal_costs:
            shown = None
        row = Row(
            key="",
            problem=problem.name,
            p=instance.devices,
            n=instance.microbatches,
            placement=instance.placement.name,
            objective=str(instance.objective),
            uneven=labels["uneven"],
            comm=labels["comm"],
            comm_ticks=_largest_comm(instance),
            memory=labels["memory"],
            memory_limit=_largest_limit(instance),
            memory_of_1f1b=memory_of_1f1b(instance),
            method=method.name,
            costs="true" if shown is None else "median",
            warm_start=warm_start if searches else None,
            time_limit=limit if searches else None,
            seed=seed if searches else 0,
            threads=experiment.threads if searches else 1,
            instance_hash="",
            state="pending",
        )
        yield make_task(row, instance, shown, experiment.max_memory, experiment.params)


def _largest_comm(instance: Instance) -> int:
    devices = range(instance.devices)
    return max(instance.comm(sender, receiver) for sender in devices for receiver in devices)


def _largest_limit(instance: Instance) -> int | None:
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    return max((limit for limit in limits if limit is not None), default=None)
