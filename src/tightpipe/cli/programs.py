"""The commands ``lower``, ``replay``, ``overlap``, ``export``, ``run`` and ``profile``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..console import show_json, show_pairs, show_table
from ..errors import InputError
from ..export import EXPORTS, export
from ..instance import Objective
from ..instance_file import save_instance
from ..placement import PLACEMENTS
from ..program import MessageOrder, Semantics, load_program, lower, replay, save_program
from ..program.passes import DEFAULT_PASSES, load_tasks, run_passes, save_tasks, visualize_overlap
from ..runtime import (
    MODELS,
    Profile,
    RunModel,
    read_chrome_trace,
    read_table,
    read_zero_bubble_log,
    run_schedule,
)
from ..runtime.profile import DTYPES, TransformerShape, profile_stages
from .common import Command, check_writable, cli, json_option, valid_schedule

_output = click.option("-o", "--output", required=True, metavar="FILE", help="File to write.")


def _semantics(text: str, **more: Any) -> Callable[[Command], Command]:
    return click.option("--semantics", type=click.Choice([str(s) for s in Semantics]), help=text, **more)


@cli.command("lower")
@click.argument("schedule")
@_output
@click.option(
    "--order",
    type=click.Choice([str(o) for o in MessageOrder]),
    default=str(MessageOrder.EARLY_RECEIVES),
    show_default=True,
    help="Where messages stand; published: exactly as the zero-bubble runtimes have them.",
)
@click.option("--no-validation", is_flag=True, help="Leave out the post-validation of the optimizer step.")
@click.option("--waits", is_flag=True, help="Put a wait behind each receive.")
@_semantics("Replayed before it is written. [default: blocking, the strictest; published: asynchronous]")
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

    The program is replayed first; one that deadlocks is not written (exit status 1, with the cycle).
    """
    check_writable(output)
    program = lower(valid_schedule(schedule).schedule, order=order, validation=not no_validation, waits=waits)
    if semantics is None:
        semantics = "asynchronous" if order == MessageOrder.PUBLISHED else "blocking"
    replay(program, semantics)
    save_program(program, output)
    nodes = sum(map(len, program.devices))
    _show({"output": output, "nodes": nodes, "replayed": semantics, "sha256": program.sha256}, as_json)


@cli.command("replay")
@click.argument("program")
@_semantics("What sends and receives wait for.", default="asynchronous", show_default=True)
@click.option("--fuse", is_flag=True, help="Issue neighbouring sends and receives as one batch.")
@click.option(
    "--link-occupancy", type=int, help="Ticks that a message keeps its link. [default: the instance's]"
)
@json_option
def _replay(program: str, semantics: str, fuse: bool, link_occupancy: int | None, as_json: bool) -> None:
    """Run the file PROGRAM; exit status 1 if its devices wait for each other."""
    timed = replay(load_program(program), semantics, fuse=fuse, link_occupancy=link_occupancy)
    _show({"semantics": semantics, "cost": timed.cost, "waited": sum(timed.waited)}, as_json)


@cli.command("overlap")
@click.argument("tasks")
@_output
@click.option("--passes", default=",".join(DEFAULT_PASSES), show_default=True, help="In the order given.")
@click.option("--budget", type=int, help="Largest peak memory.")
@click.option("--text", is_flag=True, help="Draw the overlap of the result.")
@json_option
def _overlap(tasks: str, output: str, passes: str, budget: int | None, text: bool, as_json: bool) -> None:
    """Reorder the task list in the JSON file TASKS so that communication hides behind computation."""
    check_writable(output)
    names = [name.strip() for name in passes.split(",")]
    reordered, reports = run_passes(load_tasks(tasks), names, budget=budget)
    save_tasks(reordered, output)
    fields = ("name", "exposed_before", "exposed_after", "peak_before", "peak_after", "kept")
    rows = [{field: getattr(report, field) for field in fields} for report in reports]
    if as_json:
        show_json({"output": output, "passes": rows})
        return
    show_table(fields, [list(row.values()) for row in rows])
    if text:
        print(visualize_overlap(reordered))


@cli.command("export")
@click.argument("schedule")
@click.option("--target", required=True, help=f"One of {', '.join(EXPORTS)}.")
@_output
@click.option("--merge", is_flag=True, help="torch-csv: fuse each B with the W that follows it.")
@click.option("--torch-stage0", is_flag=True, help="torch-csv: stage 0 as PyTorch runs it, B in W.")
@json_option
def _export(schedule: str, target: str, output: str, merge: bool, torch_stage0: bool, as_json: bool) -> None:
    """Write the file SCHEDULE for another program; it is checked before a byte is written."""
    check_writable(output)
    chosen = {"merge": merge, "torch_stage0": torch_stage0}
    options = {name: value for name, value in chosen.items() if value}
    export(valid_schedule(schedule).schedule, target, output, **options)
    _show({"output": output, "target": target}, as_json)


@cli.command("run")
@click.argument("schedule")
@click.option("--backend", type=click.Choice(["torch"]), default="torch", show_default=True)
@click.option("--model", type=click.Choice(MODELS), default="mlp", show_default=True)
@click.option("--width", default=64, show_default=True, help="Hidden size.")
@click.option("--layers", default=1, show_default=True, help="Layers per stage.")
@click.option("--batch", default=8, show_default=True, help="Rows per microbatch.")
@click.option("--sequence", default=16, show_default=True, help="Tokens per row of a transformer.")
@click.option("--heads", default=4, show_default=True, help="Attention heads of a transformer.")
@click.option("--seed", default=0, show_default=True)
@click.option("--steps", default=2, show_default=True, help="Training steps; the last is measured.")
@click.option("--timeout", default=300.0, show_default=True, help="Seconds until the run is ended.")
@click.option("--merge", is_flag=True, help="Fuse each B with the W that follows it.")
@json_option
def _run(
    schedule: str, backend: str, steps: int, timeout: float, merge: bool, as_json: bool, **model: Any
) -> None:
    """Train a small model with the file SCHEDULE, one process per device, and compare with one process."""
    content = valid_schedule(schedule)
    report = run_schedule(content.schedule, RunModel(**model), merge=merge, steps=steps, timeout=timeout)
    if as_json:
        show_json(report.to_dict())
    else:
        print(report)


@cli.command("profile")
@_output
@click.option("--devices", type=int, required=True)
@click.option("--microbatches", type=int, required=True)
@click.option("--placement", type=click.Choice(PLACEMENTS), default="v", show_default=True)
@click.option("--objective", type=click.Choice([str(o) for o in Objective]), default="device_span")
@click.option("--limit", type=int, help="Memory limit per device, in the profile's unit (bytes if measured).")
@click.option("--trace", multiple=True, metavar="FILE", help="Read Chrome traces with PP: ranges.")
@click.option("--log", metavar="FILE", help="Read a zero-bubble runtime's log.")
@click.option("--table", metavar="FILE", help="Read a CSV stage,kind,time,memory.")
@click.option(
    "--stages", type=int, help="Measure: number of stages. [default: two per device in v, else one]"
)
@click.option("--layers", type=int, help="Measure a transformer: layers of the whole model.")
@click.option("--hidden", type=int, help="Measure: hidden size.")
@click.option("--heads", type=int, help="Measure: attention heads.")
@click.option("--sequence", type=int, help="Measure: tokens per row.")
@click.option("--microbatch", type=int, default=1, show_default=True, help="Measure: rows per microbatch.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="[default: the GPU where there is one]")
@json_option
def _profile(
    output: str,
    devices: int,
    microbatches: int,
    placement: str,
    objective: str,
    limit: int | None,
    trace: tuple[str, ...],
    log: str | None,
    table: str | None,
    stages: int | None,
    device: str | None,
    as_json: bool,
    **shape: Any,
) -> None:
    """Write an instance file from measured costs: of a transformer here, or of a trace, log or table."""
    check_writable(output)
    profile = _read_profile(trace, log, table, placement)
    if profile is None:
        profile = _measure(shape, stages or devices * (2 if placement == "v" else 1), device)
    instance = profile.instance(
        devices=devices, microbatches=microbatches, placement=placement, limit=limit, objective=objective
    )
    save_instance(instance, output)
    costs = {"forward": profile.forward, "backward": profile.backward, "weight": profile.weight}
    _show({"output": output, **costs, "comm": profile.comm}, as_json)


def _read_profile(
    trace: tuple[str, ...], log: str | None, table: str | None, placement: str
) -> Profile | None:
    sources = {"trace": trace or None, "log": log, "table": table}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise InputError("give one of --trace, --log and --table", value=" ".join(given))
    if trace:
        return read_chrome_trace(*map(Path, trace))
    if log is not None:
        return read_zero_bubble_log(log, placement=placement)
    return None if table is None else read_table(table)


def _measure(shape: dict[str, Any], stages: int, device: str | None) -> Profile:
    missing = [name for name, value in shape.items() if value is None]
    if missing:
        needed = ", ".join(f"--{name}" for name in missing)
        raise InputError(f"a measurement needs {needed}; or give --trace, --log or --table")
    return profile_stages(TransformerShape(**shape), stages, device=device)


def _show(data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(data)
    else:
        show_pairs(data)
