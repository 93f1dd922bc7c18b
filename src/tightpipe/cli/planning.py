"""The command ``plan``: one plan, alternatives to it, or a frontier."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from ..core.allowance import Allowance
from ..core.engine_version import engine_version
from ..core.errors import InputError
from ..core.files import check_writable
from ..core.instance_file import read_data
from ..core.interruption import exit_status, held_back, was_stopped
from ..core.params.solve_params import SolveParams
from ..planning.plan import Plan
from ..planning.plan_file import plan_to_dict, save_plan
from ..planning.problem_file import load_problem
from ..planning.unusual_numbers import unusual_numbers
from ..terminal.console import show_json
from ..terminal.progress_bar import progress_bar
from .common import cli, json_option, run_options, summary_beside, warn
from .comparing_plans import show_alternatives, show_frontier


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
@run_options(60.0)
@json_option
@click.pass_context
def _plan(
    context: click.Context,
    model: str,
    output: str | None,
    alternatives: bool,
    memory: str | None,
    devices: str | None,
    time_limit: float,
    workers: int | None,
    seed: int,
    params: SolveParams,
    as_json: bool,
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
    allowance = Allowance(time_limit, workers, seed, params=params)
    if memory is not None or devices is not None:
        if alternatives:
            raise InputError("goes without --memory and --devices", key="--alternatives")
        return _frontier(model, memory, devices, output, allowance, as_json)
    if alternatives:
        return show_alternatives(model, output, allowance, as_json)
    from ..planning.planner import plan  # imported here because the solvers take long to load

    problem = load_problem(model)
    if output is not None:
        check_writable(output)
    with progress_bar(1, time_limit) as bar:
        found = plan(
            problem,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            progress=bar.begin("plan"),
            params=params,
        )
        with held_back():
            if output is not None and found.schedule is not None:
                save_plan(found, output)
    unusual = unusual_numbers(problem)
    said = warn(unusual, as_json) if unusual else {}
    with summary_beside(output):
        _show(found, output, said if as_json else None)
    context.exit(_exit_status(found))


def _exit_status(plan: Plan) -> int:
    if was_stopped(plan.reason):
        return exit_status(plan.reason)
    return 0 if plan.schedule is not None else 1


def _show(plan: Plan, output: str | None, said: Mapping[str, Any] | None) -> None:
    """Show a plan; as JSON, with the entries `said` about its model file, if these are not None."""
    if said is not None:
        written = output if plan.schedule is not None else None
        show_json({**plan_to_dict(plan), **said, "engine": engine_version(), "output": written})
    elif plan.schedule is None:
        print(f"tightpipe: {plan.status}: {plan.reason}", file=sys.stderr)
    else:
        print(plan)


def _frontier(
    model: str,
    memory: str | None,
    devices: str | None,
    output: str | None,
    allowance: Allowance,
    as_json: bool,
) -> None:
    """Plan a model for several memory sizes or numbers of devices, and keep the plans in a folder."""
    from ..planning.plan_frontier import device_points, memory_points

    warn(unusual_numbers(load_problem(model)), as_json)  # an error in the file itself names the file
    if output is None:
        raise InputError("a frontier needs -o, the folder where plans and reports go")
    data = read_data(model)
    if memory is not None and devices is not None:
        raise InputError("give either --memory or --devices, along which the frontier goes")
    if memory is not None:
        points, axis = memory_points(data, _items(memory)), "memory"
    else:
        points, axis = device_points(data, _items(str(devices))), "devices"
    show_frontier(points, axis, output, allowance, as_json)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]
