"""The command ``plan``."""

from __future__ import annotations

import sys

import click

from ..core.engine_version import engine_version
from ..core.files import check_writable
from ..core.interruption import exit_status, held_back, was_stopped
from ..planning.plan import Plan
from ..planning.plan_file import plan_to_dict, save_plan
from ..planning.problem_file import load_problem
from ..terminal.console import show_json
from ..terminal.progress_bar import progress_bar
from .common import cli, json_option, run_options, summary_beside


@cli.command("plan")
@click.argument("model")
@click.option("-o", "--output", metavar="PLAN", help="File to write; - for standard output.")
@run_options(60.0)
@json_option
@click.pass_context
def _plan(
    context: click.Context,
    model: str,
    output: str | None,
    time_limit: float,
    workers: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Cut the model in the file MODEL (TOML or JSON) into stages, place, recompute and schedule them.

    The answer is the best plan found, with a bound: no plan in the search space of MODEL is faster. Ended by
    a signal, it is the best plan so far. The exit status is 1 where nothing fits the memory.
    """
    from ..planning.planner import plan  # imported here because the solvers take long to load

    problem = load_problem(model)
    if output is not None:
        check_writable(output)
    with progress_bar(1, time_limit) as bar:
        found = plan(problem, time_limit=time_limit, workers=workers, seed=seed, progress=bar.begin("plan"))
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
