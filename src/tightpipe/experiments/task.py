"""A task is one solve of a grid, with a text from which any process can run it; a row is what is known of it.

The fields of a row are the columns of stores and CSV files.

The schedule that a task finds is kept as bytes: the content of its JSON file, compressed with deflate.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from types import UnionType
from typing import Any, Literal, get_args, get_type_hints

from ..base.errors import InputError
from ..base.sources import engine_version
from ..model.costs import Objective
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.schedule import Schedule
from ..model.schedule_file import schedule_from_dict, schedule_to_dict
from ..params.solve_params import DEFAULTS, SolveParams, params_from_dict
from ..registry.methods import find_method, loops_of
from .placing import Backwards, Copies

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
    offload: str  #: what may leave a device, e.g. ``k 1``; ``none`` or ``own``
    memory: str  #: as the experiment writes it, e.g. ``2p``
    memory_limit: int | None  #: largest limit of a device; None if no device has one
    method: str
    name: str  #: under which tables and figures show it; rows that share one are one column
    backwards: str  #: ``any``, or ``fused`` or ``split`` where all of them had to be
    copies: str  #: ``any``, or ``none`` where nothing was to leave
    costs: str  #: ``true``, or ``median`` where it saw those of `settings.with_median_costs`
    warm_start: (
        str | None
    )  #: None for methods that take none; `Task.following` says what the names after a + are
    time_limit: float | None  #: seconds; None for methods that do not search
    seed: int
    threads: int
    instance_hash: str
    state: State
    status: str | None = None
    cost: int | None = None
    device_span: int | None = None  #: what the same schedule costs under this objective
    makespan: int | None = None  #: likewise
    step: int | None = None  #: likewise
    work: int | None = None
    bubble: int | None = None
    bubble_rate: float | None = None
    imbalance: float | None = None  #: largest over mean work of a device, minus 1
    bound: int | None = None
    proof: str | None = None  #: what the bound rests on, a value of `tightpipe.Proof`
    gap: float | None = None
    backwards_bound: int | None = None  #: bound of the schedules whose backwards and copies are as asked
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


def row_from_text(cells: Mapping[str, str | None], line: int) -> Row:
    """Return the row of a CSV file's cells; an empty cell becomes None if its column may be None.

    Raise an InputError, with the column and the `line` of the file, if a cell is missing or of another type.
    """
    values = {name: _value(name, cells[name], line) for name in COLUMNS}
    return Row(**values)  # type: ignore[arg-type]  # the types are those of the columns


def _value(name: str, text: str | None, line: int) -> Value:
    if text == "" and type(None) in get_args(_HINTS[name]):
        return None
    kind = column_type(name)
    with suppress(ValueError):
        if text is not None:  # as it is where the line is too short
            return kind(text)  # type: ignore[no-any-return]
    raise InputError(f"must be of type {kind.__name__}", key=f"line {line}, {name}", value=text)


ORTOOLS = version("ortools")
_LABELS = ("problem", "uneven", "comm", "memory", "costs")
_OPTIONS = ("method", "warm_start", "time_limit", "seed", "threads")


@dataclass(frozen=True, slots=True)
class Task:
    """A solve as it is before it is run; the key of its row is also that of the task.

    `payload` is JSON with the instance, the instance that the method sees (null for the same), the options,
    and the engine that has to run it. It may also have the keys of tasks that have to end before (`after`),
    and the schedules of these (`starts`).
    """

    row: Row
    payload: str

    @property
    def instance(self) -> Instance:
        """The instance that is solved."""
        return instance_from_dict(json.loads(self.payload)["instance"])

    @property
    def params(self) -> SolveParams:
        """The numbers that tune the searches of the solve."""
        return params_from_dict(json.loads(self.payload).get("params", {}))

    @property
    def after(self) -> tuple[str, ...]:
        """Keys of the tasks that have to end before, because their schedules are more starts."""
        return tuple(json.loads(self.payload).get("after", ()))

    def started_from(self, packed: Sequence[bytes]) -> Task:
        """Return the task with schedules, as `pack` makes them, as more starts of its solve."""
        starts = [base64.b64encode(each).decode() for each in packed]
        return replace(self, payload=_canonical({**json.loads(self.payload), "starts": starts}))

    def with_makespan(self) -> Task:
        """Return the task of the same solve with the objective `makespan`."""
        data = json.loads(self.payload)
        shown = None if data["shown"] is None else _with_makespan(instance_from_dict(data["shown"]))
        row = replace(self.row, objective=str(Objective.MAKESPAN))
        return make_task(row, _with_makespan(self.instance), shown, data.get("max_memory"), self.params)

    def following(self, others: Mapping[str, Task]) -> Task:
        """Return the task that runs after others, by name, whose schedules are more starts of its solve."""
        row = replace(self.row, warm_start="+".join((str(self.row.warm_start), *others)))
        after = [other.row.key for other in others.values()]
        return _task(row, {**json.loads(self.payload), "after": after})


def _with_makespan(instance: Instance) -> Instance:
    return replace(instance, objective=Objective.MAKESPAN)


def loops_of_payload(payload: str) -> tuple[str, ...]:
    """Return the groups of compiled loops that the solve calls which the payload of a task describes."""
    data = json.loads(payload)
    named = None if data["warm_start"] == "none" else data["warm_start"]
    judged_by = () if data["shown"] is None else find_method("cpsat").loops
    return (*loops_of(find_method(data["method"]), instance_from_dict(data["instance"]), named), *judged_by)


def make_task(
    row: Row,
    instance: Instance,
    shown: Instance | None,
    max_memory: float | None = None,
    params: SolveParams = DEFAULTS,
) -> Task:
    """Return the task of a row, with key, hash of the instance, engine and versions filled in."""
    data: dict[str, Any] = {
        "engine": engine_version(),
        "instance": instance_to_dict(instance),
        "shown": None if shown is None else instance_to_dict(shown),
        **{name: getattr(row, name) for name in _OPTIONS},
        **params.record(),
    }
    if row.backwards != Backwards.ANY:
        data["backwards"] = row.backwards
    if row.copies != Copies.ANY:
        data["copies"] = row.copies
    if max_memory is not None:  # most sweeps have no cap, and the keys of their stored solves stay the same
        data["max_memory"] = max_memory
    return _task(replace(row, instance_hash=_hash(data["instance"])), data)


def _task(row: Row, data: dict[str, Any]) -> Task:
    """Return the task of a row with the content `data`, from which the key of the row follows."""
    labels = {name: getattr(row, name) for name in _LABELS}
    if row.name != row.method:
        labels["name"] = row.name
    # so that rows of another version, or of earlier code of an installed heuristic, have other keys
    code = find_method(row.method).code
    key = _hash({**data, **labels, "versions": [ORTOOLS, code] if code else [ORTOOLS]})
    return Task(replace(row, key=key, engine=data["engine"], ortools_version=ORTOOLS), _canonical(data))


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _hash(data: Any) -> str:
    return hashlib.sha256(_canonical(data).encode()).hexdigest()[:16]


def pack(schedule: Schedule, method: str, bound: int | None) -> bytes:
    """Return the compressed content of a schedule file, which also states the method and the bound."""
    content = schedule_to_dict(schedule, method=method, bound=bound)
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), level=9)


def unpack(packed: bytes) -> Schedule:
    """Return the schedule that `pack` was given."""
    return schedule_from_dict(json.loads(zlib.decompress(packed))).schedule
