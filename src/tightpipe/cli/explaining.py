"""The command ``explain``, for schedules and for plans."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from ..base.files import is_kind, read_json
from ..explain import Explanation, Phase, Reason, explain, legs
from ..model.metrics import bubble, bubble_rate, cost
from ..model.result import objective_text
from ..params.budget import Allowance
from ..params.solve_params import SolveParams
from ..planning.plan_file import load_plan
from ..planning.result import Plan
from ..planning.what_if import CHANGES, Limit, WhatIf, limits, what_ifs
from ..terminal import show_json, show_table, working
from .common import (
    cli,
    collect,
    exit_stopped,
    json_option,
    params_option,
    refuse_given,
    show_params,
    ticks,
    valid_schedule,
)


def explain_plan(
    path: str,
    explained: Explanation,
    allowance: Allowance | None,
    params: SolveParams,
    as_json: bool,
    show_schedule: Callable[[], None],
) -> None:
    """Show what limits the plan in a file, and what changes of its problem would give."""
    plan = load_plan(path)
    met = limits(plan, explained)
    if not as_json:
        show_schedule()
        _show_limits(met)
        print(f"\nA tick is {plan.problem.tick}.")
    answers, stop = ([], None) if allowance is None else _answers(plan, allowance)
    if as_json:
        lists = {"limits": [limit.to_dict() for limit in met], "changes": [a.to_dict() for a in answers]}
        show_json({
            "schedule": path,
            "method": plan.method,
            "tick": str(plan.problem.tick),
            **params.record(),
            **explained.to_dict(),
            **lists,
        })  # fmt: skip
    elif answers:
        _show_changes(answers)
    if stop is not None:
        exit_stopped(stop)


def _answers(plan: Plan, allowance: Allowance) -> tuple[list[WhatIf], KeyboardInterrupt | None]:
    """Return what changes would give, and the signal that ended the searches early, or None."""

    def said(answer: WhatIf) -> str | None:
        return f"{answer.change}: {answer.reason or answer.cost}" if answer.change in CHANGES else None

    each = allowance.time_limit or 0.0
    return collect(len(CHANGES), each, lambda begin: what_ifs(plan, allowance, begin), said)


def _show_limits(met: list[Limit]) -> None:
    print("\nWhat limits the plan, each on the device where it is the most")
    show_table(["limit", "device", "ticks or bytes", "of", "share"], [
        [limit.name, limit.device, ticks(limit.amount), ticks(limit.of), f"{limit.share:.1%}"]
        for limit in met
    ])  # fmt: skip


def _show_changes(answers: list[WhatIf]) -> None:
    print("\nWhat a change would give: a step takes at least the bound, and in the plan that was found")
    show_table(["change", "at least", "found", "saved", ""], [
        [answer.change, *map(ticks, (answer.bound, answer.cost, answer.saved)), answer.reason]
        for answer in answers
    ])  # fmt: skip


_SECONDS = 10.0  # default time limit for each change of a plan's problem


@cli.command("explain")
@click.argument("schedule")
@click.option(
    "--longest", type=click.IntRange(0), default=10, show_default=True, help="Idle intervals to list."
)
@click.option("--no-relax", is_flag=True, help="Do not compute what weaker constraints would give.")
@click.option("--time-limit", type=float, help="Seconds per change of a plan's problem. [default: 10]")
@click.option("--workers", type=int, help="Threads, for a plan. [default: all usable cores]")
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
    if not is_plan:
        rule = "goes with a plan file, not with a schedule file"
        refuse_given(rule, time_limit=time_limit, workers=workers)
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


def _show(found: Explanation, longest: int, params: SolveParams) -> None:
    schedule = found.schedule
    print(f"cost {cost(schedule):,}, bubble {bubble(schedule):,}, bubble rate {bubble_rate(schedule):.6f}")
    print(f"objective {objective_text(schedule)}; all times in ticks")
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
        [d.device, *map(ticks, (d.charged, d.busy, d.idle, *d.by_phase.values()))] for d in found.devices
    ])  # fmt: skip


def _show_reasons(found: Explanation) -> None:
    met = [reason for reason in Reason if any(d.by_reason[reason] for d in found.devices)]
    print("\nIdle time by what the device waits for")
    rows = [[str(d.device), *(ticks(d.by_reason[reason]) for reason in met)] for d in found.devices]
    total = ["all", *(ticks(sum(d.by_reason[reason] for d in found.devices)) for reason in met)]
    show_table(["device", *met], [*rows, total])


def _show_longest(found: Explanation, count: int) -> None:
    intervals = sorted(found.idle, key=lambda i: -i.ticks)[:count]
    if not intervals:
        return
    print(f"\nLongest idle intervals ({len(intervals)} of {len(found.idle)})")
    show_table(["device", "from", "ticks", "phase", "waits for", ""], [
        [i.device, ticks(i.start), ticks(i.ticks), i.phase, i.reason, i] for i in intervals
    ])  # fmt: skip


def _show_critical(found: Explanation) -> None:
    copying = ["copying"] if found.schedule.order.has_copies else []
    step = ["step"] if found.schedule.instance.barrier else []
    what = "; step: until a stage is ready, reductions, the optimizer" if step else ""
    print(f"\nCritical path: each leg starts when the one before ends; their ticks sum to the cost{what}")
    columns = ["ticks", "computing", *copying, "messages", *step, "late"]
    show_table(["from", *columns, "devices", "operations"], [
        [*map(ticks, (leg.start, *(getattr(leg, key) for key in columns))), leg.devices, leg]
        for leg in legs(found.critical)
    ])  # fmt: skip


def _show_relaxations(found: Explanation) -> None:
    if not found.relaxations:
        return
    print("\nWhat weaker constraints would give")
    show_table(["relaxed", "how", "cost", "saved", "the same way without it"], [
        [r.name, r.how, *map(ticks, (r.cost, r.saved, r.unrelaxed))] for r in found.relaxations
    ])  # fmt: skip
