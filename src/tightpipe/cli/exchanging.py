"""The commands ``export`` and ``program import`` write and read schedules as files of other programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..base.errors import InputError, NoScheduleError, about_file
from ..base.files import STANDARD, check_writable
from ..experiments.presets import FITTING, published_instance
from ..export import EXPORTS, SPLITS, data_sequence, export, import_order
from ..model.costs import Objective
from ..model.instance import Instance
from ..model.instance_file import load_instance, save_instance
from ..model.metrics import bubble_rate, cost, costs
from ..model.orders import accepted
from ..model.schedule_file import load_schedule, save_schedule
from ..planning.plan_file import load_plan
from ..planning.runtimes import own_step, split_of
from ..settings import load_settings
from .common import (
    cli,
    json_option,
    numbers,
    objective_entries,
    output_option,
    program,
    refuse_given,
    show,
    summary_beside,
    valid_schedule,
)

_INSTANCE = "instance"  # the target that writes an instance instead of a schedule
_TARGETS = ", ".join([*EXPORTS, *SPLITS, _INSTANCE])


@cli.command("export", epilog=f"The settings of --target instance: {', '.join(load_settings())}.")
@click.argument("schedule")
@click.option("--target", required=True, help=f"One of {_TARGETS}.")
@output_option
@click.option("--validation", is_flag=True, help="colossalai-json: with post-validation.")
@click.option("--merge", is_flag=True, help="torch-csv: fuse each B with the W that follows it.")
@click.option("--torch-stage0", is_flag=True, help="torch-csv: stage 0 as PyTorch runs it, without B.")
@click.option("--layout-only", is_flag=True, help="megatron-layout: without recomputation.")
@click.option("--memory", help="instance: memory limit, written as in an experiment file. [default: 2p]")
@click.option("--placement", help=f"instance: one of {', '.join(FITTING)}. [default: v]")
@click.option("--objective", help=f"instance: one of {', '.join(Objective)}. [default: device_span]")
@json_option
def _export(schedule: str, target: str, output: str, as_json: bool, **chosen: Any) -> None:
    """Write the schedule in SCHEDULE for another program; it is checked before a byte is written.

    SCHEDULE is a schedule file or a plan file. The answer says how long a step of the other program takes,
    with a barrier at its end. If the file numbers the microbatches otherwise than SCHEDULE, it has them in
    the sequence in which the other program takes their data, and the answer says that sequence. With --target
    torchtitan or megatron-layout, SCHEDULE must be a plan file, and
    the plan's cut of the model into stages is written; the answer says how many blocks the model has in the
    file. Megatron-LM runs its own schedule on that cut, and the step is that of this schedule. With --target
    instance, an instance file is written instead: the instance of the schedule, or a setting of the papers
    if SCHEDULE is the name of one, e.g. 1.5B-8x24.
    """
    check_writable(output)
    written: dict[str, Any] = {"output": output, "target": target}
    options = {name: value for name, value in chosen.items() if value}
    if target == _INSTANCE:
        save_instance(_instance_of(schedule, options), output)
    elif target in EXPORTS:
        content = valid_schedule(schedule).schedule
        with _about(schedule, options):
            export(content, target, output, **options)
        written["step"] = costs(content)[Objective.STEP]
        sequence = data_sequence(content, target)
        if sequence != sorted(sequence):
            written["sequence"] = sequence if as_json else ",".join(map(str, sequence))
    elif target in SPLITS:
        written |= _export_split(schedule, target, output, options)
    else:
        raise InputError(f"must be one of {_TARGETS}", key="target", value=target)
    with summary_beside(output):
        show(written, as_json)


@contextmanager
def _about(path: str, options: dict[str, Any]) -> Iterator[None]:
    """Let errors that are neither about another file nor about an option name the file."""
    try:
        yield
    except InputError as error:
        raise (error if error.source or error.key in options else error.at(path)) from None


def _export_split(path: str, target: str, output: str, options: dict[str, Any]) -> dict[str, Any]:
    """Write the cut of the model in a plan file; return its blocks and the step of the framework."""
    plan = load_plan(path)
    with _about(path, options):
        split = split_of(plan)
        export(split, target, output, **options)
    try:
        step: int | str | None = own_step(plan, target)
    except NoScheduleError as error:
        step = f"none: {error}"
    return {
        "blocks": split.blocks,
        "step": step,
        "planned": plan.cost,
        "objective": plan.problem.space.objective,
    }


def _instance_of(source: str, options: dict[str, Any]) -> Instance:
    """Return the instance of a schedule file, or of the published setting named `source` with `options`."""
    for name, value in options.items():
        if name not in ("memory", "placement", "objective"):
            rule = "instance has no such option; it takes memory, placement, objective"
            raise InputError(rule, key=name, value=value)
    if source != STANDARD and not Path(source).exists():
        return published_instance(source, **options)
    refuse_given("goes with the name of a setting, not with a schedule file", **options)
    return load_schedule(source).schedule.instance


@program.command("import")
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
    figures = {"cost": cost(schedule), "bubble_rate": round(bubble_rate(schedule), 6)}
    with summary_beside(output):
        show({"output": output, **objective_entries(schedule, as_json), **figures}, as_json)
