"""The commands ``plan`` and ``plan-frontier``."""

from __future__ import annotations

import sys

import click

from ..core.allowance import Allowance
from ..core.engine_version import engine_version
from ..core.errors import InputError
from ..core.files import check_writable
from ..core.instance_file import read_data
from ..core.interruption import exit_status, held_back, was_stopped
from ..planning.plan import Plan
from ..planning.plan_file import plan_to_dict, save_plan
from ..planning.problem_file import load_problem
from ..terminal.console import show_json
from ..terminal.progress_bar import progress_bar
from .common import allowance_options, cli, json_option, params_option, summary_beside
from .comparing_plans import show_alternatives, show_frontier


@cli.command("plan")
@click.argument("model")
@click.option(
    "-o",
    "--output",
    metavar="PLAN",
    help="File to write; - for standard output. With --alternatives a folder.",
)
@click.option(
    "--alternatives", is_flag=True, help="Compare schedule families, each with its own best plan, in a table."
)
@allowance_options(60.0, params_option)
@json_option
@click.pass_context
def _plan(
    context: click.Context,
    model: str,
    output: str | None,
    alternatives: bool,
    allowance: Allowance,
    as_json: bool,
) -> None:
    """Cut the model in the file MODEL (TOML or JSON) into stages, place, recompute and schedule them.

    The answer is the best plan found, with a bound: no plan in the search space of MODEL is faster than the
    bound. If a signal ends the search, the answer is the best plan so far. The exit status is 1 if no plan
    was found, e.g. because none fits the memory.

    With --alternatives, --time-limit is for each row of the table. The folder of -o keeps the plan of each
    row and the table as CSV, Markdown, LaTeX and figure. If the command is ended early, running it again
    continues where it stopped.
    """
    if alternatives:
        show_alternatives(model, output, allowance, as_json)
        return
    from ..planning.planner import plan  # imported here because the solvers take long to load

    problem = load_problem(model)
    if output is not None:
        check_writable(output)
    with progress_bar(1, allowance.time_limit) as bar:
        found = plan(problem, progress=bar.begin("plan"), **allowance.options)
        with held_back():
            if output is not None and found.schedule is not None:
                save_plan(found, output)
    with summary_beside(output):
        _show(found, output, as_json)
    context.exit(_exit_status(found))


def _exit_status(plan: Plan) -> int:
    if was_stopped(plan.reason):
        return exit_status(plan.reason)
    return 0 if plan.schedule is not None else 1


def _show(plan: Plan, output: str | None, as_json: bool) -> None:
    if as_json:
        written = output if plan.schedule is not None else None
        show_json({**plan_to_dict(plan), "engine": engine_version(), "output": written})
    elif plan.schedule is None:
        print(f"tightpipe: {plan.status}: {plan.reason}", file=sys.stderr)
    else:
        print(plan)


@cli.command("plan-frontier")
@click.argument("model")
@click.option("--memory", metavar="SIZES", help="Memory sizes of a device, e.g. 40GB,60GB,80GB.")
@click.option("--devices", metavar="NUMBERS", help="Numbers of devices of a pipeline, e.g. 2,4,8.")
@click.option("-o", "--output", required=True, metavar="FOLDER", help="Where plans and reports go.")
@allowance_options(60.0)
@json_option
def _plan_frontier(
    model: str,
    memory: str | None,
    devices: str | None,
    output: str,
    allowance: Allowance,
    as_json: bool,
) -> None:
    """Plan the model in the file MODEL for several memory sizes or lengths of the pipeline.

    With --devices, two numbers stay as in MODEL: the GPUs (its devices times its data-parallel size), and the
    microbatches of all pipelines together. --time-limit is for each point. The folder keeps the plan of each
    point and the table as CSV, Markdown, LaTeX and figure. If the command is ended early, running it again
    continues where it stopped.
    """
    from ..planning.plan_frontier import device_points, memory_points

    load_problem(model)  # an error in the file itself names the file
    if (memory is None) == (devices is None):
        raise InputError("give either --memory or --devices, along which the frontier goes")
    data = read_data(model)
    if memory is not None:
        points, axis = memory_points(data, _items(memory)), "memory"
    else:
        points, axis = device_points(data, _items(str(devices))), "devices"
    show_frontier(points, axis, output, allowance, as_json)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]
