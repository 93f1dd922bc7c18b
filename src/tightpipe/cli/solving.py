"""The commands ``solve`` and ``bound``; with ``--by-hand``, ``bound`` proves a bound in words and numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tightpipe.solver.bounds.formulas import best_bound

from ..base.errors import InfeasibleError, InputError, printable
from ..base.files import STANDARD, check_writable
from ..base.interruption import exit_status, held_back, was_stopped
from ..base.sources import engine_version
from ..certificates import certify
from ..explain.two_times_proof import prove_by_two_times
from ..model.instance import Instance
from ..model.instance_file import load_instance
from ..model.law import CostLaw, Microbatch
from ..model.law_file import load_law, load_lengths
from ..model.result import Bound, Proof, Result, summary
from ..model.schedule_file import load_schedule, save_schedule
from ..params.budget import Allowance
from ..params.solve_params import SolveParams
from ..registry.bounds import bounds_within
from ..registry.solve import solve
from ..terminal.console import progress_bar, show_json, show_pairs, show_table
from .common import (
    cli,
    json_option,
    max_memory_option,
    params_option,
    refuse_beside,
    search_options,
    summary_beside,
)

certificate_option = click.option(
    "--certificate",
    metavar="FILE",
    help="Also search for a proof of the bound, for as long as the time limit, and write it to FILE.",
)


def write_certificate(
    path: str,
    instance: Instance,
    bound: int,
    proof: Proof | None,
    time_limit: float,
    params: SolveParams,
) -> None:
    """Search for a proof of a bound, and write a certificate to a file.

    If no proof that can be checked is found, the certificate only names what the bound rests on, and a line
    on stderr says so.

    Parameters
    ----------
    path
        The file to write.
    instance
        The instance whose cost is bounded.
    bound
        The lower bound of the cost in ticks.
    proof
        What the bound rests on; None if that is not known.
    time_limit
        Seconds to search for a proof that can be checked.
    params
        The numbers that tune this search.
    """
    certificate = certify(instance, bound, proof=proof, time_limit=time_limit, params=params)
    certificate.save(path)
    if certificate.trusted:
        by = certificate.proof["by"]
        lacks = f"{printable(path)} has no proof that can be checked: the bound rests on {by}"
        print(f"tightpipe: {lacks}", file=sys.stderr)


def show_proof_by_hand(path: str, instance: Instance, as_json: bool) -> None:
    """Print the proof of the bound "two times" for the instance that the file `path` holds.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule.
    InputError
        If the bound does not apply to the instance.
    """
    if (reason := instance.infeasibility()) is not None:
        raise InfeasibleError(reason)
    proof = prove_by_two_times(instance)
    if as_json:
        show_json({"instance": path, **proof.to_dict()})
        return
    print(proof)
    other = best_bound(instance)
    if other.value > proof.times.cost:
        print(f"\nThe bound {other.name} is larger: cost >= {other.value}. Its argument: {other.argument}.")


def solve_replicas(
    law: CostLaw,
    batch: Sequence[Microbatch],
    replicas: int,
    method: str,
    output: str | None,
    allowance: Allowance,
    as_json: bool,
) -> None:
    """Divide a batch among replicas, show what each has, and write their schedules into a folder.

    Raises
    ------
    InputError
        If there are more replicas than microbatches, or the folder cannot be made.
    """
    from ..steps import StepPlanner  # imported here because only this needs it

    planner = StepPlanner(
        law, method=method, workers=allowance.threads, seed=allowance.seed, params=allowance.params
    )
    folder = None if output is None else Path(output)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            rule = f"must be a folder, for a file of each replica: {error.strerror}"
            raise InputError(rule, source=str(folder)) from None
    found = planner.assign(batch, replicas, time_limit=allowance.time_limit or 0.0)
    rows = [
        {
            "replica": r,
            "microbatches": list(part),
            "tokens": sum(sum(batch[m]) for m in part),
            "cost": result.cost,
            "bound": result.bound,
        }
        for r, (part, result) in enumerate(zip(found.parts, found.results, strict=True))
    ]
    with held_back():
        for r, result in enumerate(found.results):
            if folder is not None and result.schedule is not None:
                save_schedule(
                    result.schedule, folder / f"replica-{r}.json", method=result.method, bound=result.bound
                )
    said = {"cost": found.cost, "bound": found.bound, "gap": found.gap, "seconds": found.seconds}
    if as_json:
        show_json({**said, "replicas": rows, "engine": engine_version(), "output": output})
        return
    show_table(list(rows[0]), [list(row.values()) for row in rows])
    show_pairs({**said, "output": output})


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
@click.option("--lengths", metavar="FILE", help="Lengths of a batch, for which INSTANCE is a law.")
@click.option("--tokens", type=int, help="Pack the sequences of --lengths, up to so many tokens.")
@click.option("--replicas", type=int, help="Divide --lengths among so many pipelines; -o is a folder.")
@search_options(60.0)
@click.option(
    "--effort",
    type=float,
    help="Seconds of work, counted in place of a time limit: the same result in every run with one worker.",
)
@certificate_option
@json_option
@click.pass_context
def _solve(
    context: click.Context,
    instance: str,
    method: str,
    warm_start: str,
    output: str | None,
    lengths: str | None,
    tokens: int | None,
    replicas: int | None,
    time_limit: float,
    workers: int | None,
    seed: int,
    max_memory: float | None,
    effort: float | None,
    params: SolveParams,
    certificate: str | None,
    as_json: bool,
) -> None:
    """Solve the instance in the file INSTANCE (JSON or TOML).

    With --lengths, INSTANCE is a law file, and the microbatches have the lengths in the file. With
    --replicas, they are divided among data-parallel pipelines so that the slowest one ends early, and the
    folder of -o gets a schedule file for each.
    """
    if replicas is not None:
        if lengths is None:
            raise InputError("goes with --lengths, which it divides", key="--replicas", value=replicas)
        allowed = ("instance", "method", "output", "lengths", "tokens", "replicas")
        refuse_beside(context, "--replicas", (*allowed, "time_limit", "workers", "seed", "params", "as_json"))
        law, batch = load_law(instance), load_lengths(lengths, tokens)
        allowance = Allowance(time_limit, workers, seed, params=params)
        return solve_replicas(law, batch, replicas, method, output, allowance, as_json)
    if lengths is not None:
        problem = load_law(instance).instance(load_lengths(lengths, tokens))
    elif tokens is not None:
        raise InputError("goes with --lengths, whose sequences it packs", key="--tokens", value=tokens)
    else:
        problem = load_instance(instance)
    for path in filter(None, (output, certificate)):
        check_writable(path)
    if effort is not None and context.get_parameter_source("time_limit") is not ParameterSource.DEFAULT:
        raise InputError("goes without a time limit", key="effort", value=effort)
    with progress_bar(1, time_limit if effort is None else None) as bar:
        result = solve(
            problem,
            method,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            warm_start=_warm_start(warm_start),
            max_memory=max_memory,
            effort=effort,
            progress=bar.begin(method),
            params=params,
        )
        with held_back():
            if output is not None and result.schedule is not None:
                save_schedule(
                    result.schedule, output, method=result.method, bound=result.bound, params=params
                )
        if certificate is not None and result.bound is not None:
            write_certificate(certificate, problem, result.bound, result.proof, time_limit, params)
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
@click.option("--by-hand", is_flag=True, help="Prove a bound in words, to be checked by hand, in its place.")
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
    by_hand: bool,
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

    With --by-hand, the proof of one bound is printed instead, with the numbers of INSTANCE. This bound is
    the one called "two times": it counts what a device has to do between its first B and its last F.
    """
    problem = load_instance(instance)
    if by_hand:
        refuse_beside(context, "--by-hand", ("instance", "by_hand", "as_json"))
        return show_proof_by_hand(instance, problem, as_json)
    if certificate is not None:
        check_writable(certificate)
    with progress_bar(1, time_limit) as bar:
        allowance = Allowance(time_limit, workers, max_memory=max_memory, params=params)
        bounds, reason = bounds_within(problem, allowance, bar.begin("bound"))
        if certificate is not None:
            best = max(bounds, key=lambda bound: bound.value)
            write_certificate(certificate, problem, best.value, best.proof, time_limit, params)
    _show_bounds(bounds, reason, params, as_json)
    context.exit(exit_status(reason) if reason else 0)


def _show_bounds(bounds: Sequence[Bound], reason: str, params: SolveParams, as_json: bool) -> None:
    best = max(bounds, key=lambda bound: bound.value)
    if as_json:
        fields = ("name", "value", "proof", "seconds", "argument")
        rows = [{field: getattr(bound, field) for field in fields} for bound in bounds]
        answer = {"best": best.value, "name": best.name, "bounds": rows, "reason": reason}
        show_json({**answer, **params.record(), "engine": engine_version()})
        return
    show_table(["bound", "value", "proof", "seconds", "argument"], [
        (b.name, b.value, b.proof, f"{b.seconds:.3f}", b.argument) for b in bounds
    ])  # fmt: skip
    print(f"best: {best.value} ({best.name})" + (f"; {reason}" if reason else ""))
