"""The commands ``solve``, ``bound``, ``validate``, ``check``, ``methods`` and ``compile``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from tightpipe.solver.bounds.formulas import best_bound

from ..base.errors import InfeasibleError, InputError, NegativeError, about_file, printable
from ..base.files import STANDARD, check_writable, make_folder
from ..base.interruption import exit_status, held_back, raise_again, reason_of
from ..base.sources import engine_version, planner_version
from ..certificates import certify
from ..certificates.check_proof import main as check_files
from ..explain.two_times_proof import prove_by_two_times
from ..kernels.compiled import ensure_compiled
from ..model.instance import Instance
from ..model.instance_file import load_instance, load_law, load_lengths
from ..model.law import CostLaw, Microbatch
from ..model.metrics import bubble_rate, cost
from ..model.result import Bound, Proof, Result, objective_text, share_text, summary
from ..model.schedule_file import ScheduleFile, faults, load_schedule, save_schedule
from ..model.validate import Violation
from ..params.budget import Allowance
from ..params.solve_params import DEFAULTS, SolveParams, params_to_toml
from ..registry.methods import all_methods
from ..registry.solve import bounds_within, solve
from ..terminal import ProgressBar, show_json, show_pairs, show_table
from .common import (
    cli,
    exit_after_search,
    json_option,
    objective_entries,
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
    path: str, instance: Instance, bound: int, proof: Proof | None, allowance: Allowance, reason: str
) -> str:
    """Search for a proof of a bound, within the time limit, and write a certificate to a file.

    If a signal has ended the search for the bound, as its `reason` says, or ends this one, nothing is
    written. Return the reason.
    """
    seconds = allowance.time_limit or 0.0
    try:
        raise_again(reason)
        certificate = certify(instance, bound, proof=proof, time_limit=seconds, params=allowance.params)
        certificate.save(path)
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
        print(f"tightpipe: {reason}, so {printable(path)} was not written", file=sys.stderr)
        return reason
    if certificate.trusted:
        by = certificate.proof["by"]
        lacks = f"{printable(path)} has no proof that can be checked: the bound rests on {by}"
        print(f"tightpipe: {lacks}", file=sys.stderr)
    return reason


def show_proof_by_hand(path: str, instance: Instance, as_json: bool) -> None:
    """Print the proof of the bound "two times" for the instance that the file `path` holds."""
    if (reason := instance.infeasibility()) is not None:
        raise InfeasibleError(reason)
    proof = prove_by_two_times(instance)
    if as_json:
        show_json({"instance": path, "objective": str(instance.objective), **proof.to_dict()})
        return
    print(f"{proof}\n\nObjective: {instance.objective}")
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
    """Divide a batch among replicas, show what each has, and write their schedules into a folder."""
    from ..steps import StepPlanner  # imported here because only this needs it

    planner = StepPlanner(
        law, method=method, workers=allowance.threads, seed=allowance.seed, params=allowance.params
    )
    with _folder_for(output) as folder:
        if folder is not None:
            check_writable(folder / "replica-0.json")
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
        if folder is not None:
            _remove_earlier(folder, replicas)
    said = {"objective": str(law.objective), "cost": found.cost, "bound": found.bound, "reason": found.reason}
    times = {"gap": found.gap, "seconds": found.seconds}
    if as_json:
        show_json({**said, **times, "replicas": rows, "engine": planner_version(), "output": output})
    else:
        show_table(list(rows[0]), [list(row.values()) for row in rows])
        texts = {"gap": share_text(found.gap), "seconds": f"{found.seconds:.3f}"}
        show_pairs({**said, **texts, "output": output})
    exit_after_search(found.reason, found.results)


@contextmanager
def _folder_for(output: str | None) -> Iterator[Path | None]:
    """Yield the folder; None without a name. A new one goes again if the block ends in an error."""
    if output is None:
        yield None
        return
    new = not Path(output).exists()
    folder = make_folder(output)
    try:
        yield folder
    except (InputError, NegativeError):
        if new:
            folder.rmdir()
        raise


def _remove_earlier(folder: Path, replicas: int) -> None:
    """Remove the schedules that an earlier call has left of more replicas, which are not of this batch."""
    names = (folder / f"replica-{r}.json" for r in count(replicas))
    for path in takewhile(Path.is_file, names):
        path.unlink()
        print(f"tightpipe: removed {printable(str(path))}, of an earlier call", file=sys.stderr)


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
    certificate: str | None,
    as_json: bool,
    allowance: Allowance,
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
    if lengths is not None:
        law, batch = load_law(instance), load_lengths(lengths, tokens)
        with about_file(instance):
            problem = law.instance(batch)
        if replicas is not None:
            return solve_replicas(law, batch, replicas, method, output, allowance, as_json)
    elif tokens is not None:
        raise InputError("goes with --lengths, whose sequences it packs", key="--tokens", value=tokens)
    else:
        problem = load_instance(instance)
    for path in filter(None, (output, certificate)):
        check_writable(path)
    effort = allowance.effort
    if effort is not None and context.get_parameter_source("time_limit") is not ParameterSource.DEFAULT:
        raise InputError("goes without a time limit", key="effort", value=effort)
    with ProgressBar(1, allowance.time_limit if effort is None else None) as bar:
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
                known, by = result.bound, result.method
                save_schedule(result.schedule, output, method=by, bound=known, params=allowance.params)
        reason = result.reason
        if certificate is not None and result.bound is not None:
            reason = write_certificate(
                certificate, problem, result.bound, result.proof, allowance, result.reason
            )
    with summary_beside(output):
        _show_result(result, output, as_json)
    exit_after_search(reason, result.schedule)


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
@search_options(20.0, "effort", "seed", text="Seconds; 0 for no search.")
@certificate_option
@json_option
@click.pass_context
def _bound(
    context: click.Context,
    instance: str,
    by_hand: bool,
    certificate: str | None,
    as_json: bool,
    allowance: Allowance,
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
    with ProgressBar(1, allowance.time_limit) as bar:
        bounds, reason = bounds_within(problem, allowance, bar.begin("bound"))
        if certificate is not None:
            best = max(bounds, key=lambda bound: bound.value)
            reason = write_certificate(certificate, problem, best.value, best.proof, allowance, reason)
    _show_bounds(problem, bounds, reason, allowance.params, as_json)
    context.exit(exit_status(reason) if reason else 0)


def _show_bounds(
    instance: Instance, bounds: Sequence[Bound], reason: str, params: SolveParams, as_json: bool
) -> None:
    best = max(bounds, key=lambda bound: bound.value)
    if as_json:
        fields = ("name", "value", "proof", "seconds", "argument")
        rows = [{field: getattr(bound, field) for field in fields} for bound in bounds]
        answer = {"objective": str(instance.objective), "best": best.value, "name": best.name}
        show_json({**answer, "bounds": rows, "reason": reason, **params.record(), "engine": engine_version()})
        return
    show_table(["bound", "value", "proof", "seconds", "argument"], [
        (b.name, b.value, b.proof, f"{b.seconds:.3f}", b.argument) for b in bounds
    ])  # fmt: skip
    said = f"best: {best.value} ({best.name}), objective {instance.objective}"
    print(said + (f"; {reason}" if reason else ""))


@cli.command("validate")
@click.argument("schedule")
@json_option
@click.pass_context
def _validate(context: click.Context, schedule: str, as_json: bool) -> None:
    """Check the schedule in the file SCHEDULE against every rule of the model."""
    content = load_schedule(schedule)
    violations = faults(content.schedule, content.method) or _claims(content)
    if as_json:
        broken = [{"rule": v.rule, "message": v.message} for v in violations]
        numbers = {**objective_entries(content.schedule, as_json), "cost": cost(content.schedule)}
        show_json({"valid": not violations, **numbers, "violations": broken})
    elif violations:
        print("\n".join(map(str, violations)))
    else:
        value, rate = cost(content.schedule), bubble_rate(content.schedule)
        print(f"valid: cost {value}, bubble rate {rate:.6f}, objective {objective_text(content.schedule)}")
    context.exit(1 if violations else 0)


def _claims(content: ScheduleFile) -> list[Violation]:
    """Return the claims of a file, on cost and bound, that its valid schedule contradicts."""
    value = cost(content.schedule)
    found = []
    if content.cost is not None and content.cost != value:
        found.append(Violation("cost", f"the file claims {content.cost}, the schedule costs {value}"))
    if content.bound is not None and content.bound > value:
        found.append(
            Violation("bound", f"the file claims a bound of {content.bound}, above the cost {value}")
        )
    return found


@cli.command("check")
@click.argument("proof")
@click.argument("schedule", required=False)
@click.pass_context
def _check(context: click.Context, proof: str, schedule: str | None) -> None:
    """Check the certificate in the file PROOF, and the schedule in SCHEDULE against its bound.

    The checker is one file, `tightpipe/certificates/check_proof.py`, which runs without tightpipe as well.
    """
    context.exit(check_files([path for path in (proof, schedule) if path is not None]))


@cli.command("methods")
@click.option("--params", is_flag=True, help="Show the parameters of the searches instead, as TOML.")
@json_option
def _methods(params: bool, as_json: bool) -> None:
    """List the methods with placement, memory and source.

    Memory is in activations of one stage; p is the number of devices, v the number of stages on each device,
    n the number of microbatches. Heuristics of installed packages stand at the end.

    Where microbatches differ, the name of a heuristic may be followed by the sequence in which they run, e.g.
    1f1b:longest-first. The sequences are arrival, longest-first, shortest-first, short-at-ends and cyclic.

    With --params, the parameters of all searches are shown with their defaults and what each of them means.
    The option --params of other commands takes such a file; entries that are left out keep their defaults.
    """
    if params:
        if as_json:
            show_json({name: asdict(parameters) for name, parameters in DEFAULTS.searches()})
        else:
            print(params_to_toml(), end="")
        return
    fields = ("name", "kind", "placements", "memory", "source")
    rows = [{field: getattr(method, field) for field in fields} for method in all_methods().values()]
    if as_json:
        show_json({"methods": rows})
        return
    show_table(fields, [
        (row["name"], row["kind"], " ".join(row["placements"]), row["memory"], row["source"]) for row in rows
    ])  # fmt: skip


@cli.command("compile")
def _compile() -> None:
    """Compile all inner loops now, so that no later command waits for it."""
    ensure_compiled()
