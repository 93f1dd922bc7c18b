"""Schedules are read from and written to JSON files."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import LARGEST, InputError, check_int
from ..base.files import check_keys, check_kind, is_kind, read_json, write_text
from ..params.solve_params import DEFAULTS, SolveParams
from . import metrics
from .instance import Instance
from .instance_file import instance_from_dict, instance_to_dict
from .operation import COMPUTES, COPIES, Operation, OpKind, operation_text
from .schedule import Order, Schedule, parse_slot
from .validate import Violation, complete, validate

_REQUIRED = ("instance", "devices")
_OPTIONAL = ("copies", "method", "cost", "bound", "params")
MEASURED = "measured"
"""The entry `method` of a schedule file whose times were measured in a run of the schedule."""


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """The content of a schedule file: a schedule and the method, cost and bound that the file claims.

    Nothing verifies the claims, and each is None where the file makes none. `cost` and `bound` are in ticks.
    `params` has the parameters of the search that were not the defaults, by keys such as ``anneal.reach``.
    """

    schedule: Schedule
    method: str | None = None
    cost: int | None = None
    bound: int | None = None
    params: dict[str, Any] | None = None


def faults(schedule: Schedule, method: str | None) -> list[Violation]:
    """Return the places where a schedule breaks a rule of its instance.

    `method` is the method that the schedule's file names, or None.

    A measured schedule may break the rule that every operation takes exactly its duration: the instance has
    one duration for all microbatches of a stage, while on a machine each takes its own time.
    """
    found = validate(schedule.instance, schedule)
    return [fault for fault in found if method != MEASURED or fault.rule != "duration"]


def load_schedule(path: str | Path) -> ScheduleFile:
    """Return the content of a schedule file.

    Times are taken as written, so the schedule can break rules of the model; `validate` finds these. A plan
    file is accepted as well, because it holds the content of a schedule file under the key ``schedule``.

    Raises
    ------
    InputError
        If the file has the wrong form, or if an operation of its instance is missing or occurs twice, or one
        of its operations does not exist in the instance.
    """
    data = read_json(path)
    try:
        with _collector_paused():
            return schedule_from_dict(data["schedule"] if is_kind(data, "plan") else data)
    except InputError as error:
        raise error.at(str(path)) from None


def save_schedule(
    schedule: Schedule,
    path: str | Path,
    *,
    method: str | None = None,
    bound: int | None = None,
    params: SolveParams = DEFAULTS,
) -> None:
    """Validate a schedule and write it to a file.

    Parameters
    ----------
    schedule
        The schedule.
    path
        Path of the file.
    method
        Name of the method that found the schedule, or None. With the method `MEASURED`, operations may take
        other times than their durations.
    bound
        A lower bound of the cost in ticks, or None.
    params
        The parameters of the search; the file has those that are not the defaults.

    Raises
    ------
    ValueError
        If the schedule is invalid; no file is written then.
    InputError
        If the file cannot be written.
    """
    violations = faults(schedule, method)
    if violations:
        raise ValueError(f"not written, the schedule is invalid: {violations[0]}")
    with _collector_paused():
        text = json.dumps(schedule_to_dict(schedule, method=method, bound=bound, params=params))
    write_text(path, text + "\n")


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause Python's search for circles of references.

    While a million small lists are made, none of which can be freed, it would look through all of them again
    and again, which takes longer than making them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def schedule_to_dict(
    schedule: Schedule, *, method: str | None = None, bound: int | None = None, params: SolveParams = DEFAULTS
) -> dict[str, Any]:
    """Return the content of a schedule file as plain data, with its claims and the changed parameters."""
    computing, offload = schedule.without_copies(), schedule.instance.offload
    return {
        "instance": instance_to_dict(schedule.instance),
        "devices": [_entries(computing, device) for device in range(schedule.order.devices)],
        **({} if offload is None else {"copies": _copies(schedule)}),
        "method": method,
        "cost": metrics.cost(schedule),
        "bound": bound,
        **params.record(),
    }


def _entries(schedule: Schedule, device: int) -> list[list[Any]]:
    """Return the entries of a device; they are made from the arrays, as there may be very many of them."""
    rows = schedule.order.rows(device)
    slices = len(schedule.instance.slices)
    columns = (schedule.order.operations, schedule.start, schedule.end, schedule.order.pairs)
    entries: list[list[Any]] = []
    joined = False
    for (kind, stage, unit), start, end, joins in zip(
        *(column[rows].tolist() for column in columns), strict=True
    ):
        text = operation_text(kind, stage, unit, slices)
        if joined:
            entries[-1][0] += f"+{text}"
        else:
            entries.append([text, start, end])
        joined = joins
    return entries


def _copies(schedule: Schedule) -> list[list[Any]]:
    """Return the entries of what each device copies, by start."""
    copies = schedule.part(~schedule.order.computes)
    return [
        sorted(_entries(copies, device), key=lambda entry: entry[1:])
        for device in range(schedule.order.devices)
    ]


def schedule_from_dict(data: Any) -> ScheduleFile:
    """Return schedule and claims in a schedule file's content; raise an InputError as `load_schedule`."""
    check_kind(data, "schedule")
    check_keys(data, _REQUIRED, _OPTIONAL)
    instance = instance_from_dict(data["instance"], "instance.")
    schedule = _read_devices(instance, data)
    faults = next(complete(schedule), None)
    if faults:
        raise InputError(faults, key="devices")
    method = data.get("method")
    if method is not None and not isinstance(method, str):
        raise InputError("must be the name of a method", key="method", value=method)
    claims = {
        k: None if data[k] is None else check_int(k, data[k], None, LARGEST * 10**3)
        for k in ("cost", "bound")
        if k in data
    }
    params = data.get("params")
    if params is not None and not isinstance(params, dict):
        raise InputError("must be a table of parameters", key="params", value=params)
    return ScheduleFile(schedule, method, **claims, params=params)


Entry = tuple[tuple[Operation, ...], int, int]


def _read_devices(instance: Instance, data: dict[str, Any]) -> Schedule:
    computing = _read_lists(instance, "devices", data["devices"], COMPUTES)
    if data.get("copies") is not None:
        if instance.offload is None:
            rule = "must be left out: the instance has no offload"
            raise InputError(rule, key="copies", value=data["copies"])
        copies = _read_lists(instance, "copies", data["copies"], COPIES)
        computing = [_line(*lists) if lists[1] else lists[0] for lists in zip(computing, copies, strict=True)]
    slots = [[slot for slot, _, _ in entries] for entries in computing]
    times = [(start, end) for entries in computing for slot, start, end in entries for _ in slot]
    start, end = np.array(times, dtype=np.int64).reshape(-1, 2).T
    return Schedule(instance, Order.from_slots(slots), start, end)


def _line(computing: list[Entry], copies: list[Entry]) -> list[Entry]:
    """Return what a device computes and copies in the sequence in which it takes and gives memory.

    A pair of operations stands where its F takes memory. At equal times what gives memory comes first. What
    the device computes stays in sequence, also where its times overlap, which is against the rules.
    """

    def moment(entry: Entry) -> tuple[int, bool]:
        slot, start, end = entry
        takes = slot[0].kind in (OpKind.F, OpKind.L)
        return start if takes else end, takes

    moments = accumulate(map(moment, computing), max)
    line = [*zip(moments, computing, strict=True), *((moment(entry), entry) for entry in copies)]
    return [entry for _, entry in sorted(line, key=lambda placed: placed[0])]


def _read_lists(instance: Instance, key: str, lists: Any, kinds: tuple[OpKind, ...]) -> list[list[Entry]]:
    """Return the entries of each device; their times define the sequence, however the file lists them."""
    if not isinstance(lists, list) or len(lists) != instance.devices:
        shown = len(lists) if isinstance(lists, list) else lists
        raise InputError(f"must be a list of {instance.devices} devices", key=key, value=shown)
    found = []
    for d, entries in enumerate(lists):
        if not isinstance(entries, list):
            each = "operation" if kinds == COMPUTES else "copy"
            raise InputError(f"must be a list of [{each}, start, end]", key=f"{key}[{d}]", value=entries)
        read = [_read_entry(instance, f"{key}[{d}][{i}]", entry, kinds) for i, entry in enumerate(entries)]
        found.append(sorted(read, key=itemgetter(1, 2)))
    return found


def _read_entry(instance: Instance, key: str, entry: Any, kinds: tuple[OpKind, ...]) -> Entry:
    if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[0], str):
        raise InputError('must be ["<operation>", start, end]', key=key, value=entry)
    try:
        slot = parse_slot(entry[0], len(instance.slices))
    except InputError as error:
        raise InputError(error.rule, key=key, value=entry[0]) from None
    for op in slot:
        if op.kind not in kinds:
            names = ", ".join(kind.name for kind in kinds)
            rule = f"only {names} stand here: copies are apart from the rest"
            raise InputError(rule, key=key, value=entry[0])
        if op.stage >= instance.stages or op.microbatch >= instance.units:
            last_stage, last_microbatch = instance.stages - 1, instance.microbatches - 1
            rule = f"the instance has stages 0..{last_stage}, microbatches 0..{last_microbatch}"
            raise InputError(rule, key=key, value=entry[0])
    most = LARGEST * 10**3
    return slot, check_int(key, entry[1], None, most), check_int(key, entry[2], None, most)
