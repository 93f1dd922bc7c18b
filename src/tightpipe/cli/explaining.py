"""The command ``explain``."""

from __future__ import annotations

from functools import partial

import click

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.instance_file import is_kind, read_json
from ..core.metrics import bubble, bubble_rate, cost
from ..core.params.solve_params import SolveParams
from ..explain import Explanation, Phase, Reason, explain, legs
from ..terminal.console import show_json, show_table
from ..terminal.progress_bar import working
from .common import cli, json_option, params_option, show_params, valid_schedule
from .explaining_plans import explain_plan

_SECONDS = 10.0  # default time limit for each change of a plan's problem


@cli.command("explain")
@click.argument("schedule")
@click.option(
    "--longest", type=click.IntRange(0), default=10, show_default=True, help="Idle intervals to list."
)
@click.option("--no-relax", is_flag=True, help="Do not compute what weaker constraints would give.")
@click.option("--time-limit", type=float, help="Seconds per change of a plan's problem. [default: 10]")
@click.option("--workers", type=int, help="Threads, for a plan. [default: all cores]")
@params_option
@json_option
def _explain(
    schedule: str,
    longest: int,
    no_relax: bool,
    time_limit: float | None,
    workers: int | None,
    params: SolveParams,
    as_json: bool,
) -> None:
    """Say where the schedule in the file SCHEDULE idles, what for, and what would help.

    SCHEDULE is a schedule file or a plan file. For a plan, short searches for other plans say what more
    memory, more chunks, faster links or moving one layer to another stage would give.
    """
    is_plan = is_kind(read_json(schedule), "plan")
    _refuse_without_plan(is_plan, time_limit=time_limit, workers=workers)
    content = valid_schedule(schedule)
    with working("explaining"):
        found = explain(content.schedule, content.method, relax=not (no_relax or is_plan), params=params)
    if is_plan:
        allowance = Allowance(_SECONDS if time_limit is None else time_limit, workers, params=params)
        show_schedule = partial(_show, found, longest, params)
        explain_plan(schedule, found, None if no_relax else allowance, params, as_json, show_schedule)
    elif as_json:
        about = {"schedule": schedule, "method": content.method, **params.record()}
        show_json({**about, **found.to_dict()})
    else:
        _show(found, longest, params)


def _refuse_without_plan(is_plan: bool, **options: float | None) -> None:
    for key, value in options.items():
        if value is not None and not is_plan:
            raise InputError("goes with a plan file, not with a schedule file", key=key, value=value)


def _show(found: Explanation, longest: int, params: SolveParams) -> None:
    schedule = found.schedule
    numbers = f"cost {cost(schedule):,}, bubble {bubble(schedule):,}"
    print(f"{numbers}, bubble rate {bubble_rate(schedule):.6f}; all times in ticks")
    if found.uneven:
        print(found.uneven)
    _show_devices(found)
    _show_reasons(found)
    _show_longest(found, longest)
    _show_critical(found)
    _show_relaxations(found)
    show_params(params)


def _show_devices(found: Explanation) -> None:
    print("\nIdle time by device and phase")
    show_table(["device", "charged", "busy", "idle", *Phase], [
        [d.device, *map(_ticks, (d.charged, d.busy, d.idle, *d.by_phase.values()))] for d in found.devices
    ])  # fmt: skip


def _show_reasons(found: Explanation) -> None:
    met = [reason for reason in Reason if any(d.by_reason[reason] for d in found.devices)]
    print("\nIdle time by what the device waits for")
    rows = [[str(d.device), *(_ticks(d.by_reason[reason]) for reason in met)] for d in found.devices]
    total = ["all", *(_ticks(sum(d.by_reason[reason] for d in found.devices)) for reason in met)]
    show_table(["device", *met], [*rows, total])


def _show_longest(found: Explanation, count: int) -> None:
    intervals = sorted(found.idle, key=lambda i: -i.ticks)[:count]
    if not intervals:
        return
    print(f"\nLongest idle intervals ({len(intervals)} of {len(found.idle)})")
    show_table(["device", "from", "ticks", "phase", "waits for", ""], [
        [i.device, _ticks(i.start), _ticks(i.ticks), i.phase, i.reason, i] for i in intervals
    ])  # fmt: skip


def _show_critical(found: Explanation) -> None:
    print("\nCritical path: each leg starts when the one before ends; their ticks sum to the cost")
    columns = ["from", "ticks", "computing", "messages", "late", "devices", "operations"]
    show_table(columns, [
        [*map(_ticks, (leg.start, leg.ticks, leg.computing, leg.messages, leg.late)), leg.devices, leg]
        for leg in legs(found.critical)
    ])  # fmt: skip


def _show_relaxations(found: Explanation) -> None:
    if not found.relaxations:
        return
    print("\nWhat weaker constraints would give")
    show_table(["relaxed", "how", "cost", "saved", "the same way without it"], [
        [r.name, r.how, *map(_ticks, (r.cost, r.saved, r.unrelaxed))] for r in found.relaxations
    ])  # fmt: skip


def _ticks(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"
