"""The commands ``lower``, ``program replay`` and ``program overlap``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click
from click.core import ParameterSource

from ..core.errors import DeadlockError, InputError
from ..core.files import check_writable
from ..core.instance_file import read_json
from ..noise.grammar import FORMS
from ..program import MessageOrder, Semantics, load_program, lower, replay, save_program
from ..program.passes import (
    DEFAULT_PASSES,
    PassReport,
    ProgramReport,
    device_tasks,
    load_tasks,
    overlap_program,
    run_passes,
    save_tasks,
    visualize_overlap,
)
from ..terminal.console import show_json, show_table
from .common import Command, cli, json_option, output_option, show, summary_beside, valid_schedule
from .groups import program as program_group
from .noisy_replay import NoiseOptions, replay_with_noise

Overlapped = tuple[Sequence[PassReport | ProgramReport], Callable[[], list[str]]]
"""One report per pass, and a function that returns pictures of the result as text."""


def _semantics(text: str, **more: Any) -> Callable[[Command], Command]:
    return click.option("--semantics", type=click.Choice([str(s) for s in Semantics]), help=text, **more)


@cli.command("lower")
@click.argument("schedule")
@output_option
@click.option(
    "--order",
    type=click.Choice([str(o) for o in MessageOrder]),
    default=str(MessageOrder.EARLY_RECEIVES),
    show_default=True,
    help="Where messages stand; published: exactly as the zero-bubble runtimes have them.",
)
@click.option("--no-validation", is_flag=True, help="Leave out the post-validation of the optimizer step.")
@click.option("--waits", is_flag=True, help="Put a wait behind each receive.")
@_semantics(
    "How sends and receives wait in the replay before it is written. [default: blocking, the strictest; "
    "published: asynchronous]"
)
@json_option
def _lower(
    schedule: str,
    output: str,
    order: str,
    no_validation: bool,
    waits: bool,
    semantics: str | None,
    as_json: bool,
) -> None:
    """Lower the file SCHEDULE to a program with sends, receives and post-validation.

    The program is replayed before it is written. If it deadlocks, it is not written: the command says which
    devices wait for each other, and ends with exit status 1.
    """
    check_writable(output)
    program = lower(valid_schedule(schedule).schedule, order=order, validation=not no_validation, waits=waits)
    if semantics is None:
        semantics = "asynchronous" if order == MessageOrder.PUBLISHED else "blocking"
    replay(program, semantics)
    save_program(program, output)
    nodes = sum(map(len, program.devices))
    with summary_beside(output):
        show({"output": output, "nodes": nodes, "replayed": semantics, "sha256": program.sha256}, as_json)


@program_group.command("replay")
@click.argument("files", nargs=-1, required=True)
@_semantics("What sends and receives wait for. [default: asynchronous]")
@click.option("--fuse", is_flag=True, help="Issue neighbouring sends and receives as one batch.")
@click.option(
    "--link-occupancy", type=int, help="Ticks that a message keeps its link. [default: the instance's]"
)
@click.option(
    "--noise",
    multiple=True,
    metavar="MODEL",
    help=f"A model of noise, several times for several: {'; '.join(FORMS.values())}.",
)
@click.option("--samples", type=int, default=1000, show_default=True, help="With --noise: runs of each file.")
@click.option("--seed", type=int, default=0, show_default=True, help="With --noise: seed of the samples.")
@click.option("--workers", type=int, help="With --noise: threads. [default: all cores]")
@click.option(
    "--top",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="With --noise: lines on where delays enter.",
)
@click.option("-o", "--output", metavar="CSV", help="With --noise: the table as a file.")
@click.option("--costs", metavar="CSV", help="With --noise: the cost in every sample as a file.")
@click.option("--figure", metavar="PICTURE", help="With --noise: distributions as .png, .svg or .pdf.")
@json_option
@click.pass_context
def _replay(
    context: click.Context,
    /,
    files: tuple[str, ...],
    semantics: str | None,
    fuse: bool,
    link_occupancy: int | None,
    as_json: bool,
    **of_noise: Any,
) -> None:
    """Run a program, or with --noise the orders of schedules and programs under random durations.

    Without --noise, FILES is one program; the exit status is 1 if its devices wait for each other. With
    --noise, FILES are schedules or programs of one instance, which all run under the same random samples. The
    answer is, for each of FILES, the distribution of its cost and the operations and messages that delay it.
    """
    of_program = ("semantics", "fuse", "link_occupancy")
    _refuse_others(context, of_program if of_noise["noise"] else tuple(of_noise), bool(of_noise["noise"]))
    if of_noise["noise"]:
        replay_with_noise(files, NoiseOptions(**of_noise), as_json)
        return
    if len(files) > 1:
        raise InputError("one program at a time, unless --noise is given", key="files", value=files[1])
    _replay_program(files[0], semantics or "asynchronous", fuse, link_occupancy, as_json)


def _refuse_others(context: click.Context, names: Sequence[str], noise: bool) -> None:
    """Raise an InputError if one of the options `names` is given.

    If `noise`, these options do not go with ``--noise``, else they go only with it.
    """
    for name in names:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            key = f"--{name.replace('_', '-')}"
            raise InputError("goes without --noise" if noise else "goes with --noise", key=key)


def _replay_program(
    program: str, semantics: str, fuse: bool, link_occupancy: int | None, as_json: bool
) -> None:
    loaded = load_program(program)
    try:
        timed = replay(loaded, semantics, fuse=fuse, link_occupancy=link_occupancy)
    except DeadlockError as error:
        raise DeadlockError(f"{program}: {error}") from None
    show({"semantics": semantics, "cost": timed.cost, "waited": sum(timed.waited)}, as_json)


@program_group.command("overlap")
@click.argument("file")
@output_option
@click.option(
    "--passes", help=f"Passes in the order in which they run. [default: {','.join(DEFAULT_PASSES)}]"
)
@click.option("--budget", type=int, help="Largest peak memory.")
@click.option("--text", is_flag=True, help="Draw the overlap of the result.")
@json_option
def _overlap(
    file: str, output: str, passes: str | None, budget: int | None, text: bool, as_json: bool
) -> None:
    """Reorder FILE so that communication hides behind computation.

    FILE is a task list in JSON, of any program; or a schedule, which is lowered first and written as a
    program (the default passes are then sink_waits,raise_comms).
    """
    check_writable(output)
    overlap = _overlap_schedule if _is_schedule(file) else _overlap_tasks
    options = {} if passes is None else {"passes": [name.strip() for name in passes.split(",")]}
    reports, pictures = overlap(file, output, budget=budget, **options)
    rows = [asdict(report) for report in reports]
    with summary_beside(output):
        if as_json:
            show_json({"output": output, "passes": rows})
            return
        show_table(list(rows[0]), [list(row.values()) for row in rows])
        if text:
            print("\n".join(pictures()))


def _is_schedule(path: str) -> bool:
    data = read_json(path)
    return isinstance(data, dict) and "instance" in data  # so have programs, which `valid_schedule` refuses


def _overlap_tasks(file: str, output: str, **options: Any) -> Overlapped:
    tasks, reports = run_passes(load_tasks(file), **options)
    save_tasks(tasks, output)
    return reports, lambda: [visualize_overlap(tasks)]


def _overlap_schedule(file: str, output: str, **options: Any) -> Overlapped:
    program, reports = overlap_program(valid_schedule(file).schedule, **options)
    save_program(program, output)
    devices = range(len(program.devices))
    return reports, lambda: [visualize_overlap(device_tasks(program, device)) for device in devices]
