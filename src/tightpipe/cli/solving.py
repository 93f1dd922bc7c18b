"""The commands ``solve``, ``bound``, ``validate`` and ``methods``."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from ..console import progress_bar, show_json, show_pairs, show_table
from ..errors import InfeasibleError
from ..instance import Instance
from ..instance_file import load_instance
from ..metrics import bubble_rate, cost
from ..options import Options
from ..result import Result
from ..schedule_file import ScheduleFile, load_schedule, save_schedule
from ..solve import METHODS, bounds_within, compile_kernels, solve
from ..validate import Violation, validate
from .common import check_writable, cli, json_option, max_memory_option, search_options


@cli.command("solve")
@click.argument("instance")
@click.option("--method", default="cpsat", show_default=True, help="A name from `tightpipe methods`.")
@click.option(
    "--warm-start", default="best", show_default=True, help="A heuristic, a schedule file, best or none."
)
@click.option("--backend", help="Solver behind milp: highs or cbc. [default: highs]")
@click.option("-o", "--output", metavar="SCHEDULE", help="Write the schedule to this file.")
@search_options(60.0)
@json_option
@click.pass_context
def _solve(
    context: click.Context,
    instance: str,
    method: str,
    warm_start: str,
    backend: str | None,
    output: str | None,
    time_limit: float,
    workers: int | None,
    seed: int,
    max_memory: float | None,
    as_json: bool,
) -> None:
    """Solve the instance in the file INSTANCE (JSON or TOML)."""
    problem = load_instance(instance)
    if output is not None:
        check_writable(output)
    with progress_bar(1, time_limit) as bar:
        result = solve(
            problem,
            method,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            warm_start=_warm_start(warm_start),
            backend=backend,
            max_memory=max_memory,
            progress=bar.begin(method),
        )
    if output is not None and result.schedule is not None:
        save_schedule(result.schedule, output, method=result.method, bound=result.bound)
    _show_result(result, output, as_json)
    context.exit(0 if result.schedule is not None else 1)


def _warm_start(text: str) -> Any:
    if text == "none":
        return None
    return load_schedule(text).schedule if os.path.exists(text) else text


def _show_result(result: Result, output: str | None, as_json: bool) -> None:
    data = result.to_dict()
    if as_json:
        show_json({**data, "output": output if result.schedule is not None else None})
        return
    if result.schedule is None:
        print(f"tightpipe: {result.status}: {result.reason}", file=sys.stderr)
        return
    del data["log"]
    if not data["imbalance"]:
        del data["busiest"]  # all of them
    for key in {"busiest", "device_busy", "device_span"} & set(data):
        data[key] = " ".join(map(str, data[key]))
    for key in ("bubble_rate", "imbalance", "bubble_over_ideal", "gap"):
        data[key] = None if data[key] is None else f"{data[key]:.6f}"
    show_pairs({**data, "output": output})


@cli.command("bound")
@click.argument("instance")
@click.option("--time-limit", type=float, default=20.0, show_default=True, help="Seconds; 0 for no search.")
@click.option("--workers", type=int, help="Threads. [default: all cores]")
@max_memory_option
@json_option
def _bound(
    instance: str, time_limit: float, workers: int | None, max_memory: float | None, as_json: bool
) -> None:
    """Print every lower bound of the cost of INSTANCE that applies, and the best.

    Bounds by formula come first. Within the time limit, shaving, a linear program and CP-SAT then refute
    costs below that of the best heuristic.
    """
    problem = load_instance(instance)
    _refuse_infeasible(problem)
    with progress_bar(1, time_limit) as bar:
        options = Options(time_limit, workers, max_memory=max_memory, progress=bar.begin("bound"))
        bounds = bounds_within(problem, options)
    best = max(bounds, key=lambda bound: bound.value)
    if as_json:
        fields = ("name", "value", "seconds", "argument")
        rows = [{field: getattr(bound, field) for field in fields} for bound in bounds]
        show_json({"best": best.value, "name": best.name, "bounds": rows})
        return
    show_table(["bound", "value", "seconds", "argument"], [
        (b.name, b.value, f"{b.seconds:.3f}", b.argument) for b in bounds
    ])  # fmt: skip
    print(f"best: {best.value} ({best.name})")


def _refuse_infeasible(instance: Instance) -> None:
    reason = instance.infeasibility()
    if reason is not None:
        raise InfeasibleError(reason)


@cli.command("validate")
@click.argument("schedule")
@json_option
@click.pass_context
def _validate(context: click.Context, schedule: str, as_json: bool) -> None:
    """Check the schedule in the file SCHEDULE against every rule of the model."""
    content = load_schedule(schedule)
    violations = _claims(content) if not (found := _violations(content)) else found
    value = cost(content.schedule)
    if as_json:
        broken = [{"rule": v.rule, "message": v.message} for v in violations]
        show_json({"valid": not violations, "cost": value, "violations": broken})
    elif violations:
        print("\n".join(map(str, violations)))
    else:
        print(f"valid: cost {value}, bubble rate {bubble_rate(content.schedule):.6f}")
    context.exit(1 if violations else 0)


def _violations(content: ScheduleFile) -> list[Violation]:
    return validate(content.schedule.instance, content.schedule)


def _claims(content: ScheduleFile) -> list[Violation]:
    """Check what the file says about a schedule that is valid."""
    value = cost(content.schedule)
    found = []
    if content.cost is not None and content.cost != value:
        found.append(Violation("cost", f"the file claims {content.cost}, the schedule costs {value}"))
    if content.bound is not None and content.bound > value:
        found.append(
            Violation("bound", f"the file claims a bound of {content.bound}, above the cost {value}")
        )
    return found


@cli.command("methods")
@json_option
def _methods(as_json: bool) -> None:
    """List the methods with placement, memory and source.

    An activation is that of one stage; p is the number of devices, v the stages on each, n the microbatches.
    """
    fields = ("name", "kind", "placements", "memory", "source")
    rows = [{field: getattr(method, field) for field in fields} for method in METHODS.values()]
    if as_json:
        show_json({"methods": rows})
        return
    show_table(fields, [
        (row["name"], row["kind"], " ".join(row["placements"]), row["memory"], row["source"]) for row in rows
    ])  # fmt: skip


@cli.command("compile")
def _compile() -> None:
    """Compile all inner loops now, so that no later command waits for it."""
    compile_kernels()
