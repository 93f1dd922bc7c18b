"""Plans side by side: as CSV with all figures, as Markdown and LaTeX for people, and as points of charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from ..base.sources import engine_version
from ..base.tables import LatexTable, markdown_text
from ..model.costs import Objective
from ..model.metrics import bubble_rate, busy_times, costs, imbalance
from ..model.result import Status
from .result import Plan, counts_text

if TYPE_CHECKING:
    from ..drawing.style import Point

Row = dict[str, Any]
"""The values of one plan by column; None if a value is not known."""

_DASH = "-"


def plan_row(name: str, plan: Plan) -> Row:
    """Return the figures of a plan as a row with a name.

    Times are in the unit of time `unit`, that of the model's tick. `layers` has the number of layers of each
    stage and `recomputed` how many of them are recomputed (`counts_text`), in the sequence of the stages.
    `as_makespan` and the like are the step time of the same schedule under the other objectives.
    `memory_share` is the largest share of its memory that a device uses. `of_the_fastest` is None;
    `alternatives_rows` fills it.
    """
    candidate, schedule = plan.candidate, plan.schedule
    under = {} if schedule is None else costs(schedule)
    chosen = candidate and candidate.placement
    return {
        "name": name,
        "placement": chosen and chosen.name,
        "devices": chosen and chosen.devices,
        "chunks": chosen and chosen.stages_per_device,
        "method": plan.method or None,
        "unit": plan.problem.tick.unit,
        "step_time": plan.step_time,
        "bound": plan.problem.tick.time_of(plan.bound),
        "gap": plan.gap,
        "objective": schedule and str(plan.problem.space.objective),
        **{
            f"as_{other}": plan.problem.tick.time_of(under.get(other))
            for other in Objective
            if other != plan.problem.space.objective
        },
        "microbatches_per_second": plan.microbatches_per_second,
        "tokens_per_second": plan.tokens_per_second,
        "of_the_fastest": None,
        "bubble_rate": schedule and bubble_rate(schedule),
        "imbalance": schedule and imbalance(busy_times(schedule)),
        "memory_share": _memory_share(plan),
        "layers": candidate and " ".join(str(end - first) for first, end in candidate.stages),
        "recomputed": candidate
        and " ".join(counts_text(plan.problem, each) for each in candidate.recomputed),
        "status": str(plan.status),
        "reason": _reason(plan),
    }


def _memory_share(plan: Plan) -> float | None:
    shares = [device.peak / device.limit for device in plan.memory or () if device.limit]
    return max(shares, default=None)


def _reason(plan: Plan) -> str | None:
    if plan.schedule is None and not plan.reason:
        return "no schedule was found that fits the memory"
    return plan.reason or None


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _time(value: float) -> str:
    return f"{value:,}"


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "step_time": ("step {unit}", _time),
    "bound": ("bound {unit}", _time),
    **{f"as_{objective}": (f"as {objective} {{unit}}", _time) for objective in Objective},
    "gap": ("gap", _percent),
    "tokens_per_second": ("tokens/s", lambda value: f"{value:,.0f}"),
    "microbatches_per_second": ("microbatches/s", lambda value: f"{value:.3f}"),
    "of_the_fastest": ("of the fastest", _percent),
    "bubble_rate": ("bubble", _percent),
    "imbalance": ("imbalance", _percent),
    "memory_share": ("memory used", _percent),
}
"""Head and format of columns that tables for people show under another name or in another form.

The head of a time has the place ``{unit}`` for the unit of time, which is the same in all rows.
"""
_LEFT_OUT = ("name", "unit", "status", "reason")
_LEFT = ("family", "split", "placement", "method", "objective", "layers", "recomputed")
"""Columns that are aligned to the left."""


def shown(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the lines of the table for people, without the columns that would be empty.

    The rows are those of plans of one model, so that all times have the same unit. If the tokens of a
    microbatch are known, throughput is given in tokens alone.
    """
    known = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    columns = [name for name in known if name not in _LEFT_OUT]
    if "tokens_per_second" in columns:
        columns.remove("microbatches_per_second")
    head = [_COLUMNS[name][0].format(unit=rows[0]["unit"]) if name in _COLUMNS else name for name in columns]
    return head, [[_text(name, row[name]) for name in columns] for row in rows]


def _text(column: str, value: Any) -> str:
    if value is None:
        return _DASH
    return _COLUMNS[column][1](value) if column in _COLUMNS else str(value)


def failures(rows: Sequence[Row]) -> list[str]:
    """Return a line for each row without a plan, with its name and the reason."""
    return [f"{row['name']}: {row['reason']}" for row in rows if row["step_time"] is None]


def markdown(rows: Sequence[Row], meaning: str) -> str:
    """Return a Markdown page with the table, the text `meaning` below it, and a list of missing plans.

    `meaning` explains the columns. The list names each row without a plan, with the reason.
    """
    head, body = shown(rows)
    table = markdown_text(head, body, _LEFT)
    notes = [f"- {line}" for line in failures(rows)]
    return "\n".join([table, "", meaning, *(["", "Without a plan:", "", *notes] if notes else []), ""])


def latex_table(rows: Sequence[Row], caption: str) -> LatexTable:
    """Return the rows as a table for LaTeX."""
    head, body = shown(rows)
    texts = next(i for i, name in enumerate([*head, ""]) if name not in _LEFT)
    return LatexTable(head, body, [], texts, caption)


def milliseconds(plan: Plan, ticks: int | None) -> float | None:
    """Return the milliseconds of a number of ticks of a plan; None if the number is."""
    return None if ticks is None else float(1000 * ticks * plan.problem.tick.seconds)


def least_milliseconds(plan: Plan) -> float | None:
    """Return the bound in milliseconds: infinite if it is proven that no plan fits, None if none is known."""
    return inf if plan.status is Status.INFEASIBLE else milliseconds(plan, plan.bound)


def drawn_point(place: str, series: str, value: float | None, bound: float | None) -> Point:
    """Return a marker of a chart of plans."""
    return {"place": place, "series": series, "value": value, "bound": bound, "engine": engine_version()}
