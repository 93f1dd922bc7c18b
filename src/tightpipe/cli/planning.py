"""The command ``plan``: one plan, alternatives to it, or a frontier over memory or devices."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from ..base.errors import InputError, NoScheduleError
from ..base.files import check_writable, read_data, write_text
from ..base.interruption import held_back
from ..base.sources import planner_version
from ..base.tables import csv_text, write_latex
from ..params.budget import Allowance
from ..params.solve_params import SolveParams
from ..planning.plan_file import PlanFolder, plan_to_dict, save_plan
from ..planning.plan_table import Row, failures, latex_table, markdown, shown
from ..planning.problem_file import load_problem, unusual_numbers
from ..planning.result import Plan, time_text
from ..terminal import ProgressBar, show_json, show_table
from .common import (
    cli,
    collect,
    exit_after_search,
    exit_stopped,
    json_option,
    search_options,
    show_params,
    summary_beside,
    warn,
)
from .group import KEPT, stopped_by

if TYPE_CHECKING:
    from ..planning.problem import PlanningProblem


_COLUMNS = (
    "as makespan and the like: the time of the same schedule under this objective; "
    "bubble = (step - largest work) / step; imbalance: largest work of a device / mean work - 1; memory "
    "used: the largest share of its memory that a device uses; layers and recomputed: of each stage, in "
    "sequence, and of several kinds of recomputation for each, joined by +."
)
_ALTERNATIVES = (
    "Every row has the same cluster, memory and batch. Split: best is the best partition and recomputation "
    "that was found for the family; uniform has equally many blocks on each stage. Step: the time of a step; "
    "bound: no plan with this placement and method is faster; of the fastest: the "
    f"throughput as a share of the fastest row's; {_COLUMNS}"
)
_FRONTIER = (
    "Each row is the best plan that was found. Step: the time of a step; bound: no plan is faster; "
    f"gap = (step - bound) / step; {_COLUMNS}"
)


@dataclass(frozen=True, slots=True)
class Report:
    """How plans are reported."""

    name: str  #: name of the files, without suffix
    rows: list[Row]  #: the rows of the table, at least one
    meaning: str
    draw: Callable[[str], None]  #: function that draws the figure to a path


def _said(found: tuple[Any, Plan]) -> str:
    asked, plan = found
    text = "no plan" if plan.cost is None else f"{time_text(plan.problem, plan.cost)} per step"
    return f"{asked.name}: {text}"


def report_plans(
    report: Report,
    folder: PlanFolder | None,
    params: SolveParams,
    as_json: bool,
    stop: KeyboardInterrupt | None,
) -> None:
    """Write a report into a folder, if any, and show its table and the parameters of the searches."""
    if folder is not None:
        with held_back():
            _write(report, folder)
    if as_json:
        where = None if folder is None else str(folder.path)
        known = {"rows": report.rows, **params.record(), "engine": planner_version(), "output": where}
        show_json(known)
    else:
        show_table(*shown(report.rows))
        show_params(params)
        for line in failures(report.rows):
            print(f"no plan: {line}")
    if stop is not None and folder is not None:
        raise stopped_by(stop, KEPT)
    if stop is not None:
        exit_stopped(stop)
    if all(row["step_time"] is None for row in report.rows):
        raise NoScheduleError("no row has a plan")


def _write(report: Report, folder: PlanFolder) -> None:
    stem = str(folder.path / report.name)
    write_text(f"{stem}.csv", csv_text(report.rows[0], [row.values() for row in report.rows]))
    write_text(f"{stem}.md", markdown(report.rows, report.meaning))
    write_latex(latex_table(report.rows, report.meaning), f"{stem}.tex")
    for suffix in ("png", "pdf"):
        report.draw(f"{stem}.{suffix}")


def show_alternatives(model: str, output: str | None, allowance: Allowance, as_json: bool) -> None:
    """Show alternative plans for a model file; keep plans and reports in the folder `output`, if not None."""
    # imported here because the solvers take long to load
    from ..planning.alternatives import alternatives, alternatives_rows, draw_alternatives, questions

    asked = questions(load_problem(model))
    folder = None if output is None else PlanFolder(output, allowance)
    found, stop = collect(
        len(asked), allowance.time_limit, lambda begin: alternatives(asked, allowance, folder, begin), _said
    )
    if stop is not None and not found:
        raise stop
    report = Report(
        "alternatives", alternatives_rows(found), _ALTERNATIVES, lambda path: draw_alternatives(found, path)
    )
    report_plans(report, folder, allowance.params, as_json, stop)


def show_frontier(
    model: str,
    memory: str | None,
    devices: str | None,
    output: str | None,
    allowance: Allowance,
    as_json: bool,
) -> None:
    """Plan for several memory sizes or numbers of devices, and keep plans and reports in a folder."""
    from ..planning.plan_table import (
        device_points,
        draw_device_frontier,
        draw_memory_frontier,
        file_of,
        frontier,
        frontier_rows,
        memory_points,
    )
    from ..planning.result import with_shared_bounds

    warn(unusual_numbers(load_problem(model)), as_json)  # an error in the file itself names the file
    if output is None:
        raise InputError("a frontier needs -o, the folder where plans and reports go")
    if memory is not None and devices is not None:
        raise InputError("give either --memory or --devices, along which the frontier goes")
    by_memory, data = memory is not None, read_data(model)
    items = [item.strip() for item in str(memory if by_memory else devices).split(",")]
    points = memory_points(data, items) if by_memory else device_points(data, items)
    folder = PlanFolder(output, allowance)
    found, stop = collect(
        len(points),
        allowance.time_limit,
        lambda begin: frontier(points, allowance, folder, begin, growing=by_memory),
        _said,
    )
    if stop is not None and not found:
        raise stop
    if by_memory:
        groups = [list(group) for _, group in groupby(found, lambda one: one[1].problem.cluster.host is None)]
        plans = [plan for group in groups for plan in with_shared_bounds([plan for _, plan in group])]
        found = list(zip((point for point, _ in found), plans, strict=True))
    for point, plan in found:
        folder.put(file_of(point), plan)
    draw = draw_memory_frontier if by_memory else draw_device_frontier
    rows = frontier_rows("memory" if by_memory else "devices", found)
    report = Report("frontier", rows, _FRONTIER, lambda path: draw(found, path))
    report_plans(report, folder, allowance.params, as_json, stop)


@cli.command("plan")
@click.argument("model")
@click.option(
    "-o",
    "--output",
    metavar="PLAN",
    help="File to write; - for standard output. With several plans a folder.",
)
@click.option(
    "--alternatives", is_flag=True, help="Compare schedule families, each with its own best plan, in a table."
)
@click.option("--memory", metavar="SIZES", help="Plan for several memory sizes, e.g. 40GB,60GB,80GB.")
@click.option("--devices", metavar="NUMBERS", help="Plan for several lengths of the pipeline, e.g. 2,4,8.")
@search_options(60.0, "effort", "max_memory")
@json_option
def _plan(
    model: str,
    output: str | None,
    alternatives: bool,
    memory: str | None,
    devices: str | None,
    as_json: bool,
    allowance: Allowance,
) -> None:
    """Cut the model in the file MODEL (TOML or JSON) into stages, place, recompute and schedule them.

    The answer is the best plan found, with a bound: no plan in the search space of MODEL is faster than the
    bound. If a signal ends the search, the answer is the best plan so far. The exit status is 1 if no plan
    was found, e.g. because none fits the memory.

    With --alternatives, --memory or --devices, the answer is a table with a plan in each row, and
    --time-limit is for each row. The folder of -o keeps the plan of each row and the table as CSV, Markdown,
    LaTeX and figure. If the command is ended early, running it again continues where it stopped. With
    --devices, two numbers stay as in MODEL: the GPUs (its devices times its data-parallel size), and the
    microbatches of all pipelines together.
    """
    problem = load_problem(model)
    if problem.batch.sampling is not None and (alternatives or memory or devices):
        rule = "must be left out with --alternatives, --memory and --devices"
        raise InputError(rule, key="batch.lengths", source=model)
    if memory is not None or devices is not None:
        if alternatives:
            raise InputError("goes without --memory and --devices", key="--alternatives")
        return show_frontier(model, memory, devices, output, allowance, as_json)
    if alternatives:
        return show_alternatives(model, output, allowance, as_json)
    from ..planning.planner import plan  # imported here because the solvers take long to load

    if output is not None:
        check_writable(output)
    if problem.batch.sampling is not None:
        return _plan_steps(problem, output, allowance, as_json)
    with ProgressBar(1, allowance.time_limit) as bar:
        found = plan(problem, progress=bar.begin("plan"), **allowance.options)
        with held_back():
            if output is not None and found.schedule is not None:
                save_plan(found, output)
    unusual = unusual_numbers(problem)
    said = warn(unusual, as_json) if unusual else {}
    with summary_beside(output):
        _show(found, output, said if as_json else None)
    exit_after_search(found.reason, found.schedule)


def _plan_steps(problem: PlanningProblem, output: str | None, allowance: Allowance, as_json: bool) -> None:
    """Plan for sampled steps, and write the law of the stages, from which each step gets its orders."""
    from ..planning.many_steps import plan_steps

    with ProgressBar(1, allowance.time_limit) as bar:
        found = plan_steps(problem, progress=bar.begin("plan"), **allowance.options)
        with held_back():
            if output is not None and found.law is not None:
                write_text(output, json.dumps(found.law_file(), indent=2) + "\n")
    with summary_beside(output):
        if as_json:
            written = output if found.law is not None else None
            show_json({**found.to_dict(), "engine": planner_version(), "output": written})
        elif found.law is None:
            print(f"tightpipe: no plan: {found.reason}", file=sys.stderr)
        else:
            print(found)
    exit_after_search(found.reason, found.law)


def _show(plan: Plan, output: str | None, said: Mapping[str, Any] | None) -> None:
    """Show a plan; as JSON, with the entries `said` about its model file, if these are not None."""
    if said is not None:
        written = output if plan.schedule is not None else None
        show_json({**plan_to_dict(plan), **said, "engine": planner_version(), "output": written})
    elif plan.schedule is None:
        print(f"tightpipe: {plan.status}: {plan.reason}", file=sys.stderr)
    else:
        print(plan)
