"""Plans side by side: tables and charts of several plans, and frontiers over memory or devices.

Tables have all figures as CSV, and those that people need as Markdown and LaTeX.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import drawing
from ..base.errors import InputError, about_file, check_int
from ..base.sources import planner_version
from ..base.tables import LatexTable, markdown_text
from ..model.costs import Objective
from ..model.metrics import bubble_rate, busy_times, costs, imbalance
from ..model.result import Progress, Status
from ..params.budget import Allowance
from .plan_file import PlanFolder, kept_plan
from .planner import plan as find_plan
from .problem import PlanningProblem
from .problem_file import problem_from_dict
from .result import Plan, adopted, counts_text
from .units import parse_bytes

if TYPE_CHECKING:
    from ..drawing import style

Row = dict[str, Any]
"""The values of one plan by column; None if a value is not known."""

_DASH = "-"


def plan_row(name: str, plan: Plan) -> Row:
    """Return the figures of a plan as a row with a name.

    Times are in the unit of time `unit`, that of the model's tick. `layers` has the number of layers of each
    stage and `recomputed` how many of them are recomputed (`counts_text`), in the sequence of the stages.
    `resident` has how many stages of a device stay gathered, where pipelines share parameters, and `offload`
    how many microbatches leave each stage, where the cluster has a host.
    `as_makespan` and the like are the step time of the same schedule under the other objectives.
    `memory_share` is the largest share of its memory that a device uses. `of_the_fastest` is None;
    `alternatives_rows` fills it.
    """
    candidate, schedule = plan.candidate, plan.schedule
    under = {} if schedule is None else costs(schedule)
    chosen = candidate and candidate.placement
    return {
        "name": name,
        "placement": chosen and chosen.name,
        "devices": chosen and chosen.devices,
        "chunks": chosen and chosen.stages_per_device,
        "method": plan.method or None,
        "unit": plan.problem.tick.unit,
        "step_time": plan.step_time,
        "bound": plan.problem.tick.time_of(plan.bound),
        "gap": plan.gap,
        "objective": schedule and str(plan.problem.space.objective),
        **{
            f"as_{other}": plan.problem.tick.time_of(under.get(other))
            for other in Objective
            if other != plan.problem.space.objective
        },
        "microbatches_per_second": plan.microbatches_per_second,
        "tokens_per_second": plan.tokens_per_second,
        "of_the_fastest": None,
        "bubble_rate": schedule and bubble_rate(schedule),
        "imbalance": schedule and imbalance(busy_times(schedule)),
        "memory_share": max((d.peak / d.limit for d in plan.memory or () if d.limit), default=None),
        "layers": candidate and " ".join(str(end - first) for first, end in candidate.stages),
        "recomputed": candidate
        and " ".join(counts_text(plan.problem, each) for each in candidate.recomputed),
        "resident": candidate and candidate.resident,
        "offload": plan.offload and " ".join(str(stage.microbatches) for stage in plan.offload),
        "status": str(plan.status),
        "reason": plan.reason or (None if schedule else "no schedule was found that fits the memory"),
    }


_percent, _time = "{:.1%}".format, "{:,}".format

_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "step_time": ("step {unit}", _time),
    "bound": ("bound {unit}", _time),
    **{f"as_{objective}": (f"as {objective} {{unit}}", _time) for objective in Objective},
    "gap": ("gap", _percent),
    "tokens_per_second": ("tokens/s", lambda value: f"{value:,.0f}"),
    "microbatches_per_second": ("microbatches/s", lambda value: f"{value:.3f}"),
    "of_the_fastest": ("of the fastest", _percent),
    "bubble_rate": ("bubble", _percent),
    "imbalance": ("imbalance", _percent),
    "memory_share": ("memory used", _percent),
}
"""Head and format of columns that tables for people show under another name or in another form.

The head of a time has the place ``{unit}`` for the unit of time, which is the same in all rows.
"""
_LEFT_OUT = ("name", "unit", "status", "reason")
_LEFT = ("family", "split", "placement", "method", "objective", "layers", "recomputed", "offload")
"""Columns that are aligned to the left."""


def shown(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the lines of the table for people, without the columns that would be empty.

    The rows are those of plans of one model, so that all times have the same unit. If the tokens of a
    microbatch are known, throughput is given in tokens alone.
    """
    known = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    columns = [name for name in known if name not in _LEFT_OUT]
    if "tokens_per_second" in columns:
        columns.remove("microbatches_per_second")
    head = [_COLUMNS[name][0].format(unit=rows[0]["unit"]) if name in _COLUMNS else name for name in columns]
    return head, [[_text(name, row[name]) for name in columns] for row in rows]


def _text(column: str, value: Any) -> str:
    if value is None:
        return _DASH
    return _COLUMNS[column][1](value) if column in _COLUMNS else str(value)


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a line for each row without a plan, with its name and the reason."""
    return [f"{row['name']}: {row['reason']}" for row in rows if row["step_time"] is None]


def markdown(rows: Sequence[Row], meaning: str) -> str:
    """Return a Markdown page with the table, the `meaning` of its columns, and why rows have no plan."""
    head, body = shown(rows)
    table = markdown_text(head, body, _LEFT)
    notes = [f"- {line}" for line in failures(rows)]
    return "\n".join([table, "", meaning, *(["", "Without a plan:", "", *notes] if notes else []), ""])


def latex_table(rows: Sequence[Row], caption: str) -> LatexTable:
    """Return the rows as a table for LaTeX."""
    head, body = shown(rows)
    texts = next(i for i, name in enumerate([*head, ""]) if name not in _LEFT)
    return LatexTable(head, body, [], texts, caption)


def milliseconds(plan: Plan, ticks: int | None) -> float | None:
    """Return the milliseconds of a number of ticks of a plan; None if the number is."""
    return None if ticks is None else float(1000 * ticks * plan.problem.tick.seconds)


def least_milliseconds(plan: Plan) -> float | None:
    """Return the bound in milliseconds: infinite if it is proven that no plan fits, None if none is known."""
    return inf if plan.status is Status.INFEASIBLE else milliseconds(plan, plan.bound)


def drawn_point(place: str, series: str, value: float | None, bound: float | None) -> style.Point:
    """Return a marker of a chart of plans."""
    return {"place": place, "series": series, "value": value, "bound": bound, "engine": planner_version()}


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a frontier: a problem, named by its memory or number of devices, e.g. ``60 GB``."""

    name: str
    problem: PlanningProblem


_ALONE = " without offload"


def memory_points(data: Mapping[str, Any], sizes: Sequence[str]) -> list[Point]:
    """Return a planning problem for each size of a device's memory, with its name; the smallest comes first.

    `data` is the content of a model file, whose memory is replaced by each of `sizes`, e.g. ``60 GB``, or
    bytes. Where activations may leave to a host, all sizes come without it before.
    """
    amounts = {parse_bytes("memory", int(size) if size.isdecimal() else size, 1): size for size in sizes}
    _refuse_twice("memory", sizes, list(amounts.values()))
    points = [
        Point(size, _problem(f"with memory {size}", _changed(data, "cluster", memory=amount)))
        for amount, size in sorted(amounts.items())
    ]
    return [*(_without_host(point) for point in points if point.problem.cluster.host), *points]


def _without_host(point: Point) -> Point:
    cluster = replace(point.problem.cluster, host=None)
    return Point(point.name + _ALONE, replace(point.problem, cluster=cluster))


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
    """Return the planning problem of a model file's content; errors name `where`, e.g. "on 8 devices"."""
    with about_file(where):
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

    The arguments are those of `alternatives`. Where the memory is `growing`, a point takes over the plan of
    an earlier one that fits, if it is cheaper than that which its own search finds. A signal ends the search
    with a `KeyboardInterrupt`.
    """
    earlier: tuple[Plan, ...] = ()
    for point in points:
        watch = begin(point.name)

        def find(point: Point = point, watch: Progress = watch, earlier: tuple[Plan, ...] = earlier) -> Plan:
            return reduce(adopted, earlier, find_plan(point.problem, progress=watch, **allowance.options))

        found = kept_plan(folder, file_of(point), point.problem, find)
        yield point, found
        earlier = (*earlier, found) if growing else ()


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
    """Draw the step time of the plan for each memory of a device, with its bound.

    A bound of plans without offload does not hold for those with it, which are drawn at the same place.
    """
    points = [
        drawn_point(
            place, f"plan{alone}", milliseconds(plan, plan.cost), None if alone else least_milliseconds(plan)
        )
        for point, plan in found
        for place, alone, _ in (point.name.partition(_ALONE),)
    ]
    drawing.draw_plans(points, path, x_label="memory of a device", y_label="step time in ms")


def draw_device_frontier(found: Sequence[tuple[Point, Plan]], path: str | Path) -> None:
    """Draw the throughput of the plan for each number of devices of a pipeline, with its bound."""
    points = []
    for point, plan in found:
        highest = 0.0 if plan.status is Status.INFEASIBLE else _rate(plan, plan.bound)
        points.append(drawn_point(point.name, "plan", _rate(plan, plan.cost), highest))
    unit = "microbatches" if found[0][1].problem.batch.tokens is None else "tokens"
    x_label, y_label = "devices of a pipeline", f"{unit} per second"
    drawing.draw_plans(points, path, x_label=x_label, y_label=y_label, higher=True)


def _rate(plan: Plan, ticks: int | None) -> float | None:
    """Return the tokens, or else the microbatches, per second if a step takes so many ticks."""
    problem = plan.problem
    return None if ticks is None else problem.microbatches_per_second(ticks) * (problem.batch.tokens or 1)
