"""What several commands share: the group, common options, checks of outputs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..console import show_json, show_pairs
from ..errors import InfeasibleError, InputError
from ..schedule_file import ScheduleFile, load_schedule
from ..validate import validate
from .group import LazyGroup

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")

output_option = click.option("-o", "--output", required=True, metavar="FILE", help="File to write.")


max_memory_option = click.option(
    "--max-memory", type=float, metavar="GB", help="End CP-SAT and MILP here, and keep what they have."
)


def search_options(time_limit: float) -> Callable[[Command], Command]:
    """Add the options of every command that searches."""

    def add(command: Command) -> Command:
        for option in (
            max_memory_option,
            click.option("--seed", type=int, default=0, show_default=True, help="Seed of random choices."),
            click.option("--workers", type=int, help="Threads. [default: all cores]"),
            click.option(
                "--time-limit", type=float, default=time_limit, show_default=True, help="Seconds per solve."
            ),
        ):
            command = option(command)
        return command

    return add


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tightpipe", prog_name="tightpipe")
def cli() -> None:
    """Find pipeline-parallel training schedules and prove how good they are.

    Exit status: 0 success; 1 the answer is no (invalid schedule, infeasible instance); 2 bad input.
    """


def show(data: dict[str, Any], as_json: bool) -> None:
    """Print a command's result."""
    if as_json:
        show_json(data)
    else:
        show_pairs(data)


def check_writable(path: str) -> None:
    """Raise before the work rather than after it."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise InputError("cannot be written: there is no such folder", source=path)
    if Path(path).is_dir():
        raise InputError("cannot be written: it is a folder", source=path)
    if not os.access(folder, os.W_OK):
        raise InputError("cannot be written: the folder is read-only", source=path)


def valid_schedule(path: str) -> ScheduleFile:
    content = load_schedule(path)
    violations = validate(content.schedule.instance, content.schedule)
    if violations:
        raise InfeasibleError(f"{path}: the schedule is invalid: {violations[0]}")
    return content
