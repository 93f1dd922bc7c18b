"""The command ``lower`` and those of the group ``program``: replay, also under noise, overlap, import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from .. import drawing
from ..base.errors import DeadlockError, InputError, about_file, printable
from ..base.files import check_writable, is_kind, read_json, write_text
from ..base.sources import engine_version
from ..base.tables import csv_text
from ..drawing.style import check_target
from ..export import EXPORTS, import_order
from ..kernels.compiled import ensure_compiled
from ..model.instance_file import load_instance
from ..model.metrics import bubble_rate, cost
from ..model.orders import accepted
from ..model.schedule import Schedule
from ..model.schedule_file import save_schedule
from ..model.simulate import retime
from ..model.validate import validate
from ..noise import Noisy, parse_noises, run_noisy
from ..noise.models import FORMS
from ..program import MessageOrder, Program, Semantics, load_program, lower, replay, save_program
from ..program.passes import DEFAULT_PASSES, PassReport, run_passes
from ..program.program_passes import ProgramReport, device_tasks, overlap_program
from ..program.tasks import load_tasks, save_tasks, visualize_overlap
from ..terminal import show_json, show_table
from .common import (
    Command,
    cli,
    json_option,
    numbers,
    objective_entries,
    output_option,
    show,
    summary_beside,
    valid_schedule,
)
from .common import program as program_group

_DIGITS = 1
_COLUMNS = (
    *("schedule", "planned", "mean", "deviation", "p95", "worst", "busy", "slower"),
    *("against_first", "wins"),  # these need a second schedule
)


def replay_with_noise(
    files: Sequence[str],
    as_json: bool,
    *,
    noise: Sequence[str],
    top: int,
    output: str | None,
    costs: str | None,
    figure: str | None,
    **runs: Any,
) -> None:
    """Run the schedules of files under noise, write the files that are named, and print the numbers."""
    models = parse_noises(noise)
    for path in filter(None, (output, costs)):
        check_writable(path)
    if figure is not None:
        check_target(figure)
    named = {_name(file, files): _schedule(file) for file in files}
    ensure_compiled(("times", "noise"))
    found = dict(zip(named, run_noisy(list(named.values()), models, **runs), strict=True))
    rows = [_figures(name, noisy, next(iter(found.values())), found) for name, noisy in found.items()]
    if output is not None:
        write_text(output, csv_text(_COLUMNS, [row.values() for row in rows]))
    if costs is not None:
        samples = np.stack([noisy.costs for noisy in found.values()], axis=1).round(3).tolist()
        write_text(costs, csv_text(["sample", *found], [[k, *row] for k, row in enumerate(samples)]))
    if figure is not None:
        points = [
            {"name": name, "planned": noisy.planned, "costs": noisy.costs} for name, noisy in found.items()
        ]
        drawing.draw_distributions(points, figure)
    with summary_beside(output):
        if as_json:
            asked = {"noise": list(noise), "samples": runs["samples"], "seed": runs["seed"]}
            shown = [{**row, "critical": _critical(found[row["schedule"]], top)} for row in rows]
            said = {**asked, "objective": _objective(found), "schedules": shown}
            show_json({**said, "engine": engine_version()})
        else:
            _show(found, rows, top)


def _name(file: str, files: Sequence[str]) -> str:
    """Return a file's name without ending, or the whole path if another file has the same name."""
    short = Path(file).stem
    if files.count(file) > 1:
        raise InputError("is given twice", key="schedule", value=file)
    return printable(file if [Path(other).stem for other in files].count(short) > 1 else short)


def _schedule(path: str) -> Schedule:
    """Return a file's schedule; that of a program has its order, and the start times of least cost."""
    if not is_kind(read_json(path), "program"):
        return valid_schedule(path).schedule
    return _schedule_of_program(load_program(path), path)


def _schedule_of_program(program: Program, path: str) -> Schedule:
    """Return the order of a file's program at the start times of least cost; it may break no rule."""
    schedule = retime(program.instance, program.order)
    violations = validate(program.instance, schedule)
    if violations:
        raise InputError(f"the program's order breaks a rule: {violations[0]}", source=path)
    return schedule


def _figures(name: str, noisy: Noisy, first: Noisy, found: dict[str, Noisy]) -> dict[str, Any]:
    """Return the line of the table for the schedule `name`, by column; costs and times are in ticks.

    ``busy`` is the mean over the samples of the largest busy time of a device. ``slower`` says by which
    share the mean cost exceeds the planned cost, and ``against_first`` by which share it exceeds the mean
    cost of `first`. ``wins`` is the share of samples in which no schedule in `found` costs less.
    """
    cheapest = np.min([each.costs for each in found.values()], axis=0)
    figures = noisy.distribution
    rounded = {key: round(getattr(figures, key), _DIGITS) for key in ("mean", "deviation", "p95", "worst")}
    return {
        "schedule": name,
        "planned": noisy.planned,
        **rounded,
        "busy": round(float(noisy.busy.mean()), _DIGITS),
        "slower": round(figures.mean / noisy.planned - 1, 4),
        "against_first": round(float(noisy.costs.mean() / first.costs.mean()) - 1, 4),
        "wins": round(float((noisy.costs == cheapest).mean()), 4),
    }


def _objective(found: dict[str, Noisy]) -> str:
    return str(next(iter(found.values())).schedule.instance.objective)


def _critical(noisy: Noisy, top: int) -> list[dict[str, Any]]:
    """Return the lines of the table of the `top` operations and messages where most delay enters."""
    order, rows = noisy.schedule.order, list[dict[str, Any]]()
    for device in range(order.devices):
        for row in range(*order.rows(device).indices(len(order))):
            name = noisy.schedule.instance.name(order.operation_at(row))
            for what, share, delay in (
                (name, noisy.critical[row], noisy.delay[row]),
                (f"message to {name}", noisy.message_critical[row], noisy.message_delay[row]),
            ):
                if share:
                    figures = {"critical": round(float(share), 4), "delay": round(float(delay), _DIGITS)}
                    rows.append({"what": what, "device": device, **figures})
    return sorted(rows, key=lambda row: (-row["delay"], -row["critical"]))[:top]


def _show(found: dict[str, Noisy], rows: Sequence[dict[str, Any]], top: int) -> None:
    alone = len(found) == 1
    columns = _COLUMNS[:-2] if alone else _COLUMNS
    shares = ("slower", "against_first", "wins")
    show_table(columns, [[f"{row[c]:.2%}" if c in shares else row[c] for c in columns] for row in rows])
    print(f"objective {_objective(found)}")
    for name, noisy in found.items():
        if lines := _critical(noisy, top):
            print(
                f"\n{name}: where delays enter: mean ticks, and the share of samples in which it is critical"
            )
            body = [[f"{v:.1%}" if k == "critical" else v for k, v in row.items()] for row in lines]
            show_table(list(lines[0]), body)


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
@_semantics(
    "How sends and receives wait in the replay before it is written. [default: blocking, the strictest; "
    "published: asynchronous]"
)
@json_option
def _lower(
    schedule: str, output: str, order: str, no_validation: bool, semantics: str | None, as_json: bool
) -> None:
    """Lower the file SCHEDULE to a program with sends, receives and post-validation.

    The program is replayed before it is written. If it deadlocks, it is not written: the command says which
    devices wait for each other, and ends with exit status 1.
    """
    check_writable(output)
    program = lower(valid_schedule(schedule).schedule, order=order, validation=not no_validation)
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
@click.option("--workers", type=int, help="With --noise: threads. [default: all usable cores]")
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
    The order of a program must keep the rules of its instance, such as the memory limit.
    """
    of_program = ("semantics", "fuse", "link_occupancy")
    _refuse_others(context, of_program if of_noise["noise"] else tuple(of_noise), bool(of_noise["noise"]))
    if of_noise["noise"]:
        replay_with_noise(files, as_json, **of_noise)
        return
    if len(files) > 1:
        raise InputError("one program at a time, unless --noise is given", key="files", value=files[1])
    loaded, semantics = load_program(files[0]), semantics or "asynchronous"
    try:
        timed = replay(loaded, semantics, fuse=fuse, link_occupancy=link_occupancy)
    except DeadlockError as error:
        raise DeadlockError(f"{files[0]}: {error}") from None
    _schedule_of_program(loaded, files[0])
    numbers = {"cost": timed.cost, "waited": sum(timed.waited)}
    show({"semantics": semantics, **objective_entries(timed.schedule, as_json), **numbers}, as_json)


def _refuse_others(context: click.Context, names: Sequence[str], noise: bool) -> None:
    """Raise an InputError if one of these options is given, which go without ``--noise`` or only with it."""
    for name in names:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            key = f"--{name.replace('_', '-')}"
            raise InputError("goes without --noise" if noise else "goes with --noise", key=key)


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
    chosen = {} if passes is None else {"passes": [name.strip() for name in passes.split(",")]}
    options: dict[str, Any] = {"budget": budget, **chosen}
    data = read_json(file)
    reports: Sequence[PassReport | ProgramReport]
    if isinstance(data, dict) and "instance" in data:  # so have programs, which `valid_schedule` refuses
        made, reports = overlap_program(valid_schedule(file).schedule, **options)
        save_program(made, output)
        lists = [device_tasks(made, device) for device in range(len(made.devices))] if text else []
    else:
        tasks, reports = run_passes(load_tasks(file), **options)
        save_tasks(tasks, output)
        lists = [tasks] if text else []
    rows = [asdict(report) for report in reports]
    with summary_beside(output):
        if as_json:
            show_json({"output": output, "passes": rows})
            return
        show_table(list(rows[0]), [list(row.values()) for row in rows])
        for one in lists:
            print(visualize_overlap(one))


@program_group.command("import")
@click.argument("file")
@click.option("--target", required=True, help=f"What FILE was written for: one of {', '.join(EXPORTS)}.")
@click.option("--instance", required=True, metavar="INSTANCE", help="The instance file with its costs.")
@click.option("--sequence", metavar="M,M,...", help="The microbatches that FILE has under 0, 1 and so on.")
@output_option
@json_option
def _import(file: str, target: str, instance: str, sequence: str | None, output: str, as_json: bool) -> None:
    """Read the schedule in FILE, of another program, and write it as a schedule file.

    FILE says in which order each device runs its operations. The operations get the best start times that
    the instance's costs allow, and the schedule is checked against every rule before it is written. Where
    FILE numbers the microbatches otherwise than INSTANCE, --sequence says which is which, as `export` does.
    """
    check_writable(output)
    problem = load_instance(instance)
    numbered = None if sequence is None else numbers("sequence", sequence, "2,0,1")
    order = import_order(file, target, problem, numbered)
    with about_file(file):
        schedule = accepted(problem, order)
    save_schedule(schedule, output)
    found = {"cost": cost(schedule), "bubble_rate": round(bubble_rate(schedule), 6)}
    with summary_beside(output):
        show({"output": output, **objective_entries(schedule, as_json), **found}, as_json)
