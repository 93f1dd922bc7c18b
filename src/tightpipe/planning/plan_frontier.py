"""Frontiers: the best plan of one model for each memory size of a device, or for each number of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import drawing
from ..base.errors import InputError, check_int, faults_in
from ..model.result import Progress, Status
from ..params.budget import Allowance
from .plan_file import PlanFolder, kept_plan
from .plan_table import Row, drawn_point, least_milliseconds, milliseconds, plan_row
from .planner import plan as find_plan
from .problem import PlanningProblem
from .problem_file import problem_from_dict
from .result import Plan, adopted
from .units import parse_bytes


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a frontier: a planning problem with one memory or one number of devices.

    Parameters
    ----------
    name
        The memory or the number of devices, e.g. ``60 GB``.
    problem
        The planning problem with this memory or number of devices.
    """

    name: str
    problem: PlanningProblem


def memory_points(data: Mapping[str, Any], sizes: Sequence[str]) -> list[Point]:
    """Return a planning problem for each size of a device's memory, with its name; the smallest comes first.

    `data` is the content of a model file, whose memory is replaced by each of `sizes`, e.g. ``60 GB``, or
    bytes.
    """
    amounts = {parse_bytes("memory", int(size) if size.isdecimal() else size, 1): size for size in sizes}
    _refuse_twice("memory", sizes, list(amounts.values()))
    return [
        Point(size, _problem(f"with memory {size}", _changed(data, "cluster", memory=amount)))
        for amount, size in sorted(amounts.items())
    ]


def device_points(data: Mapping[str, Any], counts: Sequence[str]) -> list[Point]:
    """Return a named planning problem for each number of devices of a pipeline, in rising order.

    The number of GPUs, devices times data-parallel size, stays the same. So with half as many devices per
    pipeline there are twice as many pipelines, and each of them takes half as many microbatches. An
    InputError says where that is not possible; `data` is the content of a model file with one number of
    devices.
    """
    asked = problem_from_dict(data)
    numbers = [check_int("devices", int(c) if c.isdecimal() else c, 1) for c in counts]
    _refuse_twice("devices", numbers, list(dict.fromkeys(numbers)))
    return [Point(str(number), _on_devices(data, asked, number)) for number in sorted(numbers)]


def _on_devices(data: Mapping[str, Any], asked: PlanningProblem, devices: int) -> PlanningProblem:
    if len(asked.cluster.devices) > 1:
        rule = "must be one number, which times data_parallel is the number of GPUs"
        raise InputError(rule, key="cluster.devices", value=list(asked.cluster.devices))
    pipelines, rest = divmod(asked.cluster.devices[0] * asked.batch.data_parallel, devices)
    if rest:
        rule = f"must divide the number of GPUs, {devices * pipelines + rest} (devices x data_parallel)"
        raise InputError(rule, key="devices", value=devices)
    all_microbatches = asked.batch.microbatches * asked.batch.data_parallel
    if all_microbatches % pipelines:
        rule = f"makes {pipelines} pipelines, which cannot share {all_microbatches} microbatches evenly"
        raise InputError(rule, key="devices", value=devices)
    changed = _changed(data, "cluster", devices=devices)
    batch = {"microbatches": all_microbatches // pipelines, "data_parallel": pipelines}
    return _problem(f"on {devices} devices", _changed(changed, "batch", **batch))


def _problem(where: str, data: Mapping[str, Any]) -> PlanningProblem:
    """Return the planning problem of a model file's content.

    If the content is not valid, the error has `where`, e.g. "on 8 devices", as the source of the value.
    """
    with faults_in(where):
        return problem_from_dict(data)


def _changed(data: Mapping[str, Any], table: str, **entries: Any) -> dict[str, Any]:
    return {**data, table: {**data[table], **entries}}


def _refuse_twice(key: str, given: Sequence[Any], distinct: Sequence[Any]) -> None:
    if len(given) > len(distinct):
        raise InputError("must have each value once", key=key, value=",".join(map(str, given)))


def frontier(
    points: Sequence[Point],
    allowance: Allowance,
    folder: PlanFolder,
    begin: Callable[[str], Progress],
    *,
    growing: bool,
) -> Iterator[tuple[Point, Plan]]:
    """Yield each point of a frontier with the best plan of its problem, as soon as the plan is found.

    Each search gets the `allowance`. The folder keeps each plan before it is yielded, and a plan that is
    already there is not searched for again. `begin` is called with the name of each point, and returns a
    function that the search calls with each new cost or bound. Where every plan of a point is also one of the
    next point, as when the memory is `growing`, the next point takes over the plan if it is cheaper than the
    one that its own search finds. A signal ends the search with a `KeyboardInterrupt`.
    """
    before: Plan | None = None
    for point in points:
        watch = begin(point.name)

        def find(point: Point = point, watch: Progress = watch, before: Plan | None = before) -> Plan:
            return adopted(find_plan(point.problem, progress=watch, **allowance.options), before)

        found = kept_plan(folder, file_of(point), point.problem, find)
        yield point, found
        before = found if growing else None


def file_of(point: Point) -> str:
    """Return the name under which a folder keeps the plan of a point."""
    return f"plan-{point.name.replace(' ', '')}"


def frontier_rows(axis: str, found: Sequence[tuple[Point, Plan]]) -> list[Row]:
    """Return the rows of a table of the plans that were found, one for each point.

    Its first column, which has the name `axis`, holds the names of the points. All pipelines together have
    the same microbatches at each number of devices, so the column `of_the_fastest` compares their step times.
    """
    rows = []
    steps = [plan.cost for _, plan in found if plan.cost is not None and axis == "devices"]
    for point, plan in found:
        row = plan_row(point.name, plan)
        if steps and plan.cost is not None:
            row["of_the_fastest"] = min(steps) / plan.cost
        # `place` is added again, because `row` has None for the number of devices if there is no plan
        place, pipelines = {axis: point.name}, {"pipelines": plan.problem.batch.data_parallel}
        rows.append({**place, **pipelines, **row, **place})
    return rows


def draw_memory_frontier(found: Sequence[tuple[Point, Plan]], path: str | Path) -> None:
    """Draw the step time of the plan for each memory of a device, with its bound."""
    points = [
        drawn_point(point.name, "plan", milliseconds(plan, plan.cost), least_milliseconds(plan))
        for point, plan in found
    ]
    drawing.draw_plans(points, path, x_label="memory of a device", y_label="step time in ms")


def draw_device_frontier(found: Sequence[tuple[Point, Plan]], path: str | Path) -> None:
    """Draw the throughput of the plan for each number of devices of a pipeline, with its bound."""
    points = [
        drawn_point(point.name, "plan", _rate(plan, plan.cost), _highest_rate(plan)) for point, plan in found
    ]
    unit = "microbatches" if found[0][1].problem.batch.tokens is None else "tokens"
    x_label, y_label = "devices of a pipeline", f"{unit} per second"
    drawing.draw_plans(points, path, x_label=x_label, y_label=y_label, higher=True)


def _rate(plan: Plan, ticks: int | None) -> float | None:
    """Return the throughput of all data-parallel pipelines if a training step takes `ticks` ticks.

    It is in tokens per second, or in microbatches per second if the batch has no token count; None if `ticks`
    is None.
    """
    problem = plan.problem
    return None if ticks is None else problem.microbatches_per_second(ticks) * (problem.batch.tokens or 1)


def _highest_rate(plan: Plan) -> float | None:
    """Return the throughput that no plan exceeds: 0 if it is proven that no plan fits, None if unknown."""
    return 0.0 if plan.status is Status.INFEASIBLE else _rate(plan, plan.bound)
