"""The command ``validate``."""

from __future__ import annotations

import click

from ..core.metrics import bubble_rate, cost
from ..core.schedule_file import ScheduleFile, faults, load_schedule
from ..core.validate import Violation
from ..terminal.console import show_json
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
