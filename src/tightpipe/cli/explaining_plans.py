"""The part of the command ``explain`` for plans: what limits a plan, and what changes would give."""

from __future__ import annotations

from collections.abc import Callable

from ..core.allowance import Allowance
from ..core.params.solve_params import SolveParams
from ..explain import Explanation
from ..planning.limits import Limit, limits
from ..planning.plan import Plan
from ..planning.plan_file import load_plan
from ..planning.what_if import CHANGES, WhatIf, what_ifs
from ..terminal.console import show_json, show_table
from ..terminal.progress_bar import progress_bar
from .common import exit_stopped


def explain_plan(
    path: str,
    explained: Explanation,
    allowance: Allowance | None,
    params: SolveParams,
    as_json: bool,
    show_schedule: Callable[[], None],
) -> None:
    """Show what limits the plan in a file, and what changes of its problem would give.

    If a signal ends the searches, what was found by then is shown, and the command ends.

    Parameters
    ----------
    path
        The plan file.
    explained
        The explanation of the plan's schedule.
    allowance
        Time limit, threads and parameters of the search for each change; None for no search.
    params
        The parameters, which the JSON object names where they are not the defaults.
    as_json
        Whether to print one JSON object in place of tables.
    show_schedule
        Function that prints the explanation of the schedule, which comes first.

    Raises
    ------
    InputError
        If the file is no plan file.
    """
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
    found: list[WhatIf] = []
    each = allowance.time_limit or 0.0
    with progress_bar(len(CHANGES), each * len(CHANGES)) as bar:
        try:
            for answer in what_ifs(plan, allowance, bar.begin):
                found.append(answer)
                if answer.change in CHANGES:
                    left = each * (len(CHANGES) - len(found) + 1)
                    bar.finish(f"{answer.change}: {answer.reason or answer.cost}", left)
        except KeyboardInterrupt as stop:
            return found, stop
    return found, None


def _show_limits(met: list[Limit]) -> None:
    print("\nWhat limits the plan, each on the device where it is the most")
    show_table(["limit", "device", "ticks or bytes", "of", "share"], [
        [limit.name, limit.device, _ticks(limit.amount), _ticks(limit.of), f"{limit.share:.1%}"]
        for limit in met
    ])  # fmt: skip


def _show_changes(answers: list[WhatIf]) -> None:
    print("\nWhat a change would give: a step takes at least the bound, and in the plan that was found")
    show_table(["change", "at least", "found", "saved", ""], [
        [answer.change, *map(_ticks, (answer.bound, answer.cost, answer.saved)), answer.reason]
        for answer in answers
    ])  # fmt: skip


def _ticks(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"
