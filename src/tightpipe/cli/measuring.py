"""The commands ``export``, ``run`` and ``measure``: schedules in other programs and real runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..base.errors import InputError, NoScheduleError
from ..base.files import STANDARD, check_writable, write_text
from ..drawing.gantt import draw_side_by_side
from ..drawing.style import check_target
from ..experiments.presets import FITTING, published_instance
from ..export import EXPORTS, SPLITS, data_sequence, export
from ..measuring import (
    TOLERANCE,
    Cause,
    Measurement,
    TimerTotals,
    is_timer_log,
    measure,
    read_timers,
    variation_table,
)
from ..model import metrics
from ..model.costs import Objective
from ..model.instance import Instance
from ..model.instance_file import save_instance
from ..model.metrics import costs
from ..model.result import objective_text
from ..model.schedule_file import MEASURED, load_schedule, save_schedule
from ..planning.plan_file import load_plan
from ..planning.runtimes import own_step, split_of
from ..runtime import DTYPES, MODELS, STEPS, RunModel, run_schedule
from ..settings import load_settings
from ..terminal import show_json, show_table, working
from .common import (
    cli,
    json_option,
    output_option,
    refuse_given,
    show,
    summary_beside,
    ticks,
    valid_schedule,
    warn,
)

_LISTED = 8  # number of kinds of operations in the table of those whose times vary most


@cli.command("run")
@click.argument("schedule")
@click.option("--model", type=click.Choice(MODELS), default="mlp", show_default=True)
@click.option("--width", default=64, show_default=True, help="Hidden size.")
@click.option("--layers", default=1, show_default=True, help="Layers per stage.")
@click.option("--ffn", multiple=True, type=int, help="Size of the feed-forward networks, or each layer's.")
@click.option("--vocabulary", type=int, help="With embedding and head of so many tokens.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
@click.option("--batch", default=8, show_default=True, help="Rows per microbatch.")
@click.option("--sequence", default=16, show_default=True, help="Tokens per row of a transformer.")
@click.option("--heads", default=4, show_default=True, help="Attention heads of a transformer.")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--steps", default=STEPS, show_default=True, help="Training steps: one to warm up, the others measured."
)
@click.option("--timeout", default=300.0, show_default=True, help="Seconds until the run is ended.")
@click.option("--merge", is_flag=True, help="Fuse each B with the W that follows it.")
@click.option("--trace", metavar="FOLDER", help="Record the steps, for measure: one trace per process.")
@json_option
def _run(schedule: str, as_json: bool, **options: Any) -> None:
    """Train a small model by the file SCHEDULE, a process per device, and compare with one process."""
    how = {key: options.pop(key) for key in ("merge", "steps", "timeout", "trace", "device")}
    content = valid_schedule(schedule)
    with working(f"training in {content.schedule.instance.devices} processes"):
        report = run_schedule(content.schedule, RunModel(**options), **how)
    if as_json:
        show_json(report.to_dict())
    else:
        print(report)


@cli.command("measure")
@click.argument("traces", nargs=-1, required=True)
@click.option("--schedule", metavar="FILE", help="The schedule that was to be run, to compare with.")
@click.option(
    "--pattern",
    multiple=True,
    metavar="KIND:REGEX",
    help="How ranges are named: F, B, W, BW or COMM, with groups stage or chunk, and microbatch.",
)
@click.option("--microbatches", type=int, help="Per step, where neither names nor a schedule say it.")
@click.option(
    "--devices", type=int, help="Length of the pipeline, for a log of Megatron-LM. [default: all ranks]"
)
@click.option(
    "--step", type=int, help="Training step of the traces that is measured, from 0. [default: the last]"
)
@click.option(
    "--tolerance",
    type=float,
    default=TOLERANCE,
    show_default=True,
    help="Microseconds that a message may seem to arrive too early.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the measured step as a schedule file.")
@click.option("--instance", metavar="FILE", help="Write the instance with the median costs.")
@click.option(
    "--jitter", metavar="FILE", help="Write how much times vary, for program replay --noise jitter:FILE."
)
@click.option("--figure", metavar="PICTURE", help="Draw plan and measurement: .png, .svg or .pdf.")
@json_option
def _measure(
    traces: tuple[str, ...],
    schedule: str | None,
    devices: int | None,
    output: str | None,
    instance: str | None,
    jitter: str | None,
    figure: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure a pipeline's run by the TRACES of its processes: busy and idle time, bubble, costs.

    TRACES are files of one pipeline, or folders with them: traces of PyTorch's profiler, one per rank, or
    reports of Nsight Systems exported as SQLite. A single log with the timers of Megatron-LM gives totals.
    """
    for path in (output, instance, jitter):
        if path is not None:
            check_writable(path)
    if jitter is not None and not jitter.endswith(".csv"):
        raise InputError("must end in .csv, by which --noise knows a table", key="jitter", value=jitter)
    if figure is not None:
        check_target(figure)
        if schedule is None:
            raise InputError("needs --schedule, beside whose rows it draws", key="figure", value=figure)
    if len(traces) == 1 and is_timer_log(traces[0]):
        rule = "needs the times of operations; Megatron's timers are totals: record with a profiler"
        others = {"figure": figure, "schedule": schedule, "pattern": options["pattern"] or None}
        refuse_given(rule, output=output, jitter=jitter, **others)
        _show_totals(read_timers(traces[0], devices), options["microbatches"], instance, as_json)
        return
    refuse_given("goes with a log of Megatron-LM's timers", devices=devices)
    plan = None if schedule is None else valid_schedule(schedule).schedule
    with working("reading traces"):
        found = measure(*traces, schedule=plan, patterns=options.pop("pattern"), **options)
    if output is not None:
        save_schedule(found.schedule, output, method=MEASURED)
    if instance is not None:
        save_instance(found.instance, instance)
    if jitter is not None:
        write_text(jitter, variation_table(found.costs))
    if figure is not None and plan is not None:
        draw_side_by_side(plan, found.schedule, figure)
    with summary_beside(output):
        if as_json:
            show_json(found.to_dict())
        else:
            _show(found)


def _show(found: Measurement) -> None:
    warn(found.warnings, False)
    print(f"training step {found.step} of {found.steps}; all times in microseconds")
    print(f"measured  cost {found.cost:,}, bubble rate {found.bubble_rate:.2%}")
    print(f"objective {objective_text(found.schedule)}")
    if found.plan is not None:
        planned = metrics.bubble_rate(found.plan)
        print(f"plan      cost {metrics.cost(found.plan):,}, bubble rate {planned:.2%}")
        print(f"order     {found.deviation or 'as in the plan'}")
    if any(found.offsets):
        moved = ", ".join(f"{offset / 1000:,.1f}" for offset in found.offsets)
        print(f"clocks    put forward by {moved}")
    _show_devices(found)
    _show_waits(found)
    _show_costs(found)


def _show_devices(found: Measurement) -> None:
    met = [cause for cause in Cause if any(account.idle[cause] for account in found.accounts)]
    print("\nTime of each device, and why it was idle")
    show_table(["device", "begins", "charged", "busy", *met, "idle"], [
        [
            a.device,
            *map(ticks, (a.begins, a.charged, a.busy, *(a.idle[c] for c in met))),
            f"{a.idle_share:.1%}",
        ]
        for a in found.accounts
    ])  # fmt: skip


def _show_waits(found: Measurement) -> None:
    print("\nWaits for other devices, and the longest idle time")
    show_table(["device", "waits for device", "longest"], [
        [a.device, ", ".join(f"{d}: {ticks(t)}" for d, t in a.waited_for.items()) or None, a.longest or None]
        for a in found.accounts
    ])  # fmt: skip


def _show_costs(found: Measurement) -> None:
    most = sorted(found.costs, key=lambda cost: -cost.jitter)[:_LISTED]
    print(f"\nOperations whose times vary most ({len(most)} of {len(found.costs)} kinds and stages)")
    show_table(["operation", "stage", "count", "median", "deviation", "95 %", "longest", "which"], [
        [
            *(c.kind.name, c.stage, c.count),
            *(f"{t:,.1f}" for t in (c.median, c.deviation, c.p95, c.longest)),
            c.slowest,
        ]
        for c in most
    ])  # fmt: skip


def _show_totals(totals: TimerTotals, microbatches: int | None, instance: str | None, as_json: bool) -> None:
    if instance is not None:
        if microbatches is None:
            raise InputError("the instance of a log of timers needs --microbatches: how many a step has")
        save_instance(totals.instance(microbatches), instance)
    if as_json:
        show_json(totals.to_dict())
        return
    print(f"step {totals.step:,.0f}, bubble rate {totals.bubble_rate:.2%}; all times in microseconds")
    show_table(["device", "forward", "backward", "messages", "other", "step"], [
        [d.device, *(f"{t:,.0f}" for t in (d.forward, d.backward, d.messages, d.other, d.step))]
        for d in totals.devices
    ])  # fmt: skip
    print("The timers are totals: record a trace to see which operation waits for which.")


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
    torchtitan or megatron-layout, SCHEDULE must be a plan file, and the plan's cut of the model into stages
    is written; the answer says how many blocks the model has in the file. Megatron-LM runs its own schedule
    on that cut, and the step is that of this schedule. With --target instance, an instance file is written
    instead: the instance of the schedule, or a setting of the papers if SCHEDULE is the name of one, e.g.
    1.5B-8x24.
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
        written["step"] = costs(EXPORTS[target].prepare(content, **options))[Objective.STEP]
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
