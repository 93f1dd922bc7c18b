"""The commands ``validate``, ``check``, ``methods`` and ``compile``."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..certificates.check_proof import main as check_files
from ..model.metrics import bubble_rate, cost
from ..model.schedule_file import ScheduleFile, faults, load_schedule
from ..model.validate import Violation
from ..params.solve_params import DEFAULTS, params_to_toml
from ..registry.ensure_compiled import ensure_compiled
from ..registry.methods import all_methods
from ..terminal.console import show_json, show_table
from .common import cli, json_option


@cli.command("validate")
@click.argument("schedule")
@json_option
@click.pass_context
def _validate(context: click.Context, schedule: str, as_json: bool) -> None:
    """Check the schedule in the file SCHEDULE against every rule of the model."""
    content = load_schedule(schedule)
    violations = faults(content.schedule, content.method) or _claims(content)
    value = cost(content.schedule)
    if as_json:
        broken = [{"rule": v.rule, "message": v.message} for v in violations]
        show_json({"valid": not violations, "cost": value, "violations": broken})
    elif violations:
        print("\n".join(map(str, violations)))
    else:
        print(f"valid: cost {value}, bubble rate {bubble_rate(content.schedule):.6f}")
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
    """Check the certificate in the file PROOF, and the schedule in the file SCHEDULE against its bound.

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
        _show_params(as_json)
        return
    fields = ("name", "kind", "placements", "memory", "source")
    rows = [{field: getattr(method, field) for field in fields} for method in all_methods().values()]
    if as_json:
        show_json({"methods": rows})
        return
    show_table(fields, [
        (row["name"], row["kind"], " ".join(row["placements"]), row["memory"], row["source"]) for row in rows
    ])  # fmt: skip


def _show_params(as_json: bool) -> None:
    if as_json:
        show_json({name: asdict(parameters) for name, parameters in DEFAULTS.searches()})
    else:
        print(params_to_toml(), end="")


@cli.command("compile")
def _compile() -> None:
    """Compile all inner loops now, so that no later command waits for it."""
    ensure_compiled()
