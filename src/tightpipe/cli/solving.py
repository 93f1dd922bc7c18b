"""The commands ``solve`` and ``bound``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource

from ..core.allowance import Allowance
from ..core.engine_version import engine_version
from ..core.errors import InputError
from ..core.files import STANDARD, check_writable
from ..core.instance_file import load_instance
from ..core.interruption import exit_status, held_back, reason_of, was_stopped
from ..core.params.solve_params import SolveParams
from ..core.result import Bound, Result
from ..core.result_text import summary
from ..core.schedule_file import load_schedule, save_schedule
from ..solving.bounds import bounds_within
from ..solving.solve import solve
from ..terminal.console import show_json, show_pairs, show_table
from ..terminal.progress_bar import progress_bar
from .certifying import certificate_option, write_certificate
from .common import (
    allowance_options,
    cli,
    json_option,
    max_memory_option,
    params_option,
    summary_beside,
)

_effort_option = click.option(
    "--effort",
    type=float,
    help="Seconds of work, counted in place of a time limit: the same result in every run with one worker.",
)


@cli.command("solve")
@click.argument("instance")
@click.option(
    "--method",
    default="best",
    show_default=True,
    help="A name from `tightpipe methods`, or module:function of your own.",
)
@click.option(
    "--warm-start", default="best", show_default=True, help="A heuristic, a schedule file, best or none."
)
@click.option("-o", "--output", metavar="SCHEDULE", help="File to write; - for standard output.")
@allowance_options(60.0, params_option, _effort_option, max_memory_option)
@certificate_option
@json_option
@click.pass_context
def _solve(
    context: click.Context,
    instance: str,
    method: str,
    warm_start: str,
    output: str | None,
    allowance: Allowance,
    certificate: str | None,
    as_json: bool,
) -> None:
    """Solve the instance in the file INSTANCE (JSON or TOML)."""
    problem = load_instance(instance)
    for path in filter(None, (output, certificate)):
        check_writable(path)
    limit, effort = allowance.time_limit or 0.0, allowance.effort
    if effort is not None and context.get_parameter_source("time_limit") is not ParameterSource.DEFAULT:
        raise InputError("goes without a time limit", key="effort", value=effort)
    with progress_bar(1, limit if effort is None else None) as bar:
        result = solve(
            problem,
            method,
            warm_start=_warm_start(warm_start),
            max_memory=allowance.max_memory,
            effort=effort,
            progress=bar.begin(method),
            **allowance.options,
        )
        with held_back():
            if output is not None and result.schedule is not None:
                params = allowance.params
                save_schedule(
                    result.schedule, output, method=result.method, bound=result.bound, params=params
                )
        if certificate is not None and result.bound is not None:
            write_certificate(certificate, problem, result.bound, result.proof, limit)
    with summary_beside(output):
        _show_result(result, output, as_json)
    context.exit(_exit_status(result))


def _exit_status(result: Result) -> int:
    if was_stopped(result.reason):
        return exit_status(result.reason)
    return 0 if result.schedule is not None else 1


def _warm_start(text: str) -> Any:
    if text == "none":
        return None
    return load_schedule(text).schedule if text == STANDARD or os.path.exists(text) else text


def _show_result(result: Result, output: str | None, as_json: bool) -> None:
    if as_json:
        written = output if result.schedule is not None else None
        show_json({**result.to_dict(), "engine": engine_version(), "output": written})
        return
    if result.schedule is None:
        print(f"tightpipe: {result.status}: {result.reason}", file=sys.stderr)
        return
    show_pairs({**summary(result), "output": output})


@cli.command("bound")
@click.argument("instance")
@click.option("--time-limit", type=float, default=20.0, show_default=True, help="Seconds; 0 for no search.")
@click.option("--workers", type=int, help="Threads. [default: all cores]")
@max_memory_option
@params_option
@certificate_option
@json_option
@click.pass_context
def _bound(
    context: click.Context,
    instance: str,
    time_limit: float,
    workers: int | None,
    max_memory: float | None,
    params: SolveParams,
    certificate: str | None,
    as_json: bool,
) -> None:
    """Print every lower bound of the cost of INSTANCE that applies, and the best.

    Bounds by formula come first. Within the time limit, shaving, a linear program and CP-SAT then refute
    costs below the cost of the best heuristic. If a signal ends the search, the bounds found so far are
    printed.
    """
    problem = load_instance(instance)
    if certificate is not None:
        check_writable(certificate)
    with progress_bar(1, time_limit) as bar:
        allowance = Allowance(time_limit, workers, max_memory=max_memory, params=params)
        bounds, reason = _until_stopped(bounds_within(problem, allowance, bar.begin("bound")))
        if certificate is not None:
            best = max(bounds, key=lambda bound: bound.value)
            write_certificate(certificate, problem, best.value, best.proof, time_limit)
    _show_bounds(bounds, reason, params, as_json)
    context.exit(exit_status(reason) if reason else 0)


def _until_stopped(bounds: Iterator[Bound]) -> tuple[list[Bound], str]:
    """Return the bounds found until the searches end, and the reason if a signal ended them ("" if not)."""
    found: list[Bound] = []
    try:
        for bound in bounds:
            found.append(bound)
    except KeyboardInterrupt as stop:
        if not found:
            raise
        return found, reason_of(stop)
    return found, ""


def _show_bounds(bounds: Sequence[Bound], reason: str, params: SolveParams, as_json: bool) -> None:
    best = max(bounds, key=lambda bound: bound.value)
    if as_json:
        fields = ("name", "value", "proof", "seconds", "argument")
        rows = [{field: getattr(bound, field) for field in fields} for bound in bounds]
        answer = {"best": best.value, "name": best.name, "bounds": rows, "reason": reason}
        if changed := params.changed():
            answer["params"] = changed
        show_json({**answer, "engine": engine_version()})
        return
    show_table(["bound", "value", "proof", "seconds", "argument"], [
        (b.name, b.value, b.proof, f"{b.seconds:.3f}", b.argument) for b in bounds
    ])  # fmt: skip
    print(f"best: {best.value} ({best.name})" + (f"; {reason}" if reason else ""))
