"""A row is what is known of one solve of a sweep; its fields are the columns of stores and CSV files."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Literal, get_args, get_type_hints

State = Literal["pending", "running", "done", "failed"]
Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One solve: its place in the grid, the conditions under which it runs, and its result.

    What is not known, or not yet, is None. Times are in ticks, memory in the instance's unit.
    """

    key: str  #: hash of all that decides the result
    problem: str  #: name of the setting, or of the instance's file
    p: int  #: number of devices
    n: int  #: number of microbatches
    placement: str
    chunks: int  #: stages of each device, of one direction
    objective: str
    uneven: str  #: how stages were made unlike, e.g. ``first 0.5 last 1.5``; empty if they were not
    comm: str  #: as the experiment writes it, e.g. ``0.25f``
    comm_ticks: int  #: largest communication time between two devices
    discount: str  #: what a fused backward takes less than B and W apart, e.g. ``0.1``; or ``own``
    memory: str  #: as the experiment writes it, e.g. ``2p``
    memory_limit: int | None  #: largest limit of a device; None if no device has one
    method: str
    name: str  #: under which tables and figures show it; rows that share one are one column
    backwards: str  #: ``any``, or ``fused`` or ``split`` where all of them had to be
    costs: str  #: ``true``, or ``median`` where it saw those of `settings.with_median_costs`
    warm_start: (
        str | None
    )  #: None for methods that take none; `Task.following` says when it ends in +makespan
    time_limit: float | None  #: seconds; None for methods that do not search
    seed: int
    threads: int
    instance_hash: str
    state: State
    status: str | None = None
    cost: int | None = None
    work: int | None = None
    bubble: int | None = None
    bubble_rate: float | None = None
    imbalance: float | None = None  #: largest over mean work of a device, minus 1
    bound: int | None = None
    proof: str | None = None  #: what the bound rests on, a value of `core.result.Proof`
    gap: float | None = None
    backwards_bound: int | None = None  #: bound of the schedules whose backwards are all fused or all split
    splits: int | None = None  #: number of backwards that the schedule splits into B and W
    peak_memory: int | None = None
    memory_of_1f1b: float | None = None  #: memory limit over the peak memory of 1F1B
    seconds: float | None = None
    cpu_seconds: float | None = None  #: processor seconds of the solve
    trace: str | None = None  #: JSON list of [seconds, incumbent cost, bound]
    reason: str | None = None  #: why there is no schedule, or why the method ended early
    error: str | None = None  #: why the solve failed
    attempts: int = 0
    host: str | None = None
    cores: int | None = None
    engine: str | None = None  #: version and commit of the code that ran the solve
    ortools_version: str | None = None
    python_version: str | None = None
    params: str | None = None  #: JSON of the parameters that are not the defaults
    finished_at: str | None = None  #: UTC, ISO 8601


COLUMNS = tuple(field.name for field in fields(Row))
"""Names of the columns, in order."""

_HINTS = get_type_hints(Row)


def column_type(name: str) -> type:
    """Return the Python type of a column's values: int, float or str."""
    hint: Any = _HINTS[name]
    if isinstance(hint, UnionType):
        hint = get_args(hint)[0]
    return hint if isinstance(hint, type) else str


def row_from_text(cells: dict[str, str]) -> Row:
    """Return the row of a CSV file's cells; an empty cell becomes None if its column may be None."""
    values = {name: _value(name, cells[name]) for name in COLUMNS}
    return Row(**values)  # type: ignore[arg-type]  # the types are those of the columns


def _value(name: str, text: str) -> Value:
    if text == "" and type(None) in get_args(_HINTS[name]):
        return None
    return column_type(name)(text)  # type: ignore[no-any-return]
