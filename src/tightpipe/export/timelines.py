"""Schedules as timelines: ``csv``, with a row per operation, and ``chrome-trace`` for Perfetto.

A row of the CSV file has the device, the operation, its start, its end, and the memory that the device holds
during it.

The Chrome trace has a process for each device, a complete event for each operation, a flow for each message
from the operation that sends it to the one that receives it, and a counter track for memory. One tick is one
microsecond. Where microbatches differ, an event says of which class its microbatch is.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from ..base.errors import InputError
from ..base.files import json_content
from ..base.tables import csv_text
from ..drawing.palette import TRACE_NAMES
from ..model.graph_arrays import inputs_of
from ..model.operation import Operation
from ..model.schedule import Order, Schedule, check_slot
from ..model.simulate import memory_trace

_HEADER = ["device", "operation", "start", "end", "memory"]


def write_csv(schedule: Schedule) -> str:
    """Return the text of a CSV table with a row per operation."""
    memory = memory_trace(schedule.instance, schedule.order).tolist()
    return csv_text(_HEADER, ([*cells, memory[row]] for row, *cells in _rows(schedule)))


def read_csv(text: str) -> Order:
    """Return the `Order` in the text of a CSV table; neighbouring rows with the same times are a pair."""
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or rows[0] != _HEADER:
        shown = ",".join(rows[0]) if rows else ""
        raise InputError(f"must begin with {','.join(_HEADER)}", key="line 1", value=shown)
    return _order_of_rows(_entries_of_csv(rows[1:]))


def _entries_of_csv(rows: list[list[str]]) -> Iterator[tuple[int, Operation, bool]]:
    times: list[str] = []
    for line, row in enumerate(rows, 2):
        if len(row) != len(_HEADER) or not row[0].isdecimal():
            raise InputError(f"must have {len(_HEADER)} fields", key=f"line {line}", value=",".join(row))
        # Every operation takes at least a tick, so on one device only joined operations have equal times.
        yield int(row[0]), Operation.parse(row[1]), times == [row[0], *row[2:4]]
        times = [row[0], *row[2:4]]


def _order_of_rows(rows: Iterable[tuple[int, Operation, bool]]) -> Order:
    """Return the order that the rows of a file describe.

    A row holds a device, an operation, and whether this operation runs together with that of the row before.
    """
    devices: list[list[list[Operation]]] = []
    for device, operation, together in rows:
        if device == len(devices):
            devices.append([])
        if device < 0 or device != len(devices) - 1:
            raise InputError("the devices must come one after another from 0", key="device", value=device)
        if together and devices[device]:
            devices[device][-1].append(operation)
            check_slot(devices[device][-1])
        else:
            devices[device].append([operation])
    return Order.from_slots(devices)


_JUST_BEFORE = 0.001  # microseconds; a flow must begin inside its event, and viewers resolve nanoseconds

Event = dict[str, Any]


def write_trace(schedule: Schedule) -> str:
    """Return the text of a Chrome trace."""
    events = [*_names(schedule), *_operations(schedule), *_memory(schedule), *_flows(schedule)]
    body = ",\n".join(json.dumps(event) for event in events)
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{body}\n]}}\n'


def _names(schedule: Schedule) -> Iterator[Event]:
    tracks = ("operations", "run together")[: 1 + bool(schedule.order.pairs.any())]
    digits = len(str(schedule.order.devices - 1))  # Perfetto sorts processes by name
    for device in range(schedule.order.devices):
        yield _name("process_name", device, 0, {"name": f"device {device:0{digits}}"})
        yield _name("process_sort_index", device, 0, {"sort_index": device})
        for second, track in enumerate(tracks):
            yield _name("thread_name", device, second, {"name": track})


def _name(kind: str, device: int, second: int, args: dict[str, Any]) -> Event:
    return {"ph": "M", "name": kind, **_track(device, second), "args": args}


def _track(device: int, second: int) -> dict[str, int]:
    """Return the numbers of process and thread that place an event on a track of a device.

    A device is a process, and its tracks are threads: the first one has `second` = 0. The other one has
    `second` = 1, and shows the second of two operations that run together. The number of a thread is neither
    0 nor the number of its process, because Perfetto would take such a thread for the main thread.
    """
    return {"pid": device, "tid": 2 * device + 1 + second}


def _rows(schedule: Schedule) -> Iterator[tuple[int, int, Operation, int, int]]:
    """Yield row, device, operation, start and end of each operation; times are in ticks."""
    start, end, row = schedule.start.tolist(), schedule.end.tolist(), 0
    for device, operations in enumerate(schedule.order.to_lists()):
        for op in operations:
            yield row, device, op, start[row], end[row]
            row += 1


def _operations(schedule: Schedule) -> Iterator[Event]:
    instance, joined = schedule.instance, schedule.order.pairs.tolist()
    second = 0
    for row, device, op, start, end in _rows(schedule):
        yield {
            "ph": "X",
            "name": str(op),
            "cat": op.kind.name,
            "cname": TRACE_NAMES[op.kind],
            **_track(device, second),
            "ts": start,
            "dur": end - start,
            "args": {"stage": op.stage, "microbatch": op.microbatch, "row": row, "joined": bool(joined[row])}
            | ({} if instance.alike else {"class": instance.mb_class(op.microbatch)}),
        }
        second = joined[row]


def _memory(schedule: Schedule) -> Iterator[Event]:
    if schedule.instance.memory is None:
        return
    changes: list[dict[int, int]] = [{0: 0} for _ in range(schedule.order.devices)]
    for _, device, op, start, end in _rows(schedule):
        delta = schedule.instance.memory_of(op)
        at = start if delta > 0 else end
        changes[device][at] = changes[device].get(at, 0) + delta
    for device, deltas in enumerate(changes):
        held = 0
        for time in sorted(deltas):
            held += deltas[time]
            yield {"ph": "C", "name": "memory", "pid": device, "ts": time, "args": {"held": held}}


def _flows(schedule: Schedule) -> Iterator[Event]:
    """Yield the two events, start and finish, of every message between two devices."""
    inputs, rows = inputs_of(schedule.instance, schedule.order), list(_rows(schedule))
    second = [0, *schedule.order.pairs.tolist()]
    for row, device, receiver, start, _ in rows:
        if inputs.message[row]:
            sent_in, there, sender, _, ended = rows[inputs.source[row]]
            message = {"cat": "message", "name": f"{sender} to {receiver}", "id": row}
            yield {"ph": "s", **message, **_track(there, second[sent_in]), "ts": ended - _JUST_BEFORE}
            yield {"ph": "f", "bp": "e", **message, **_track(device, second[row]), "ts": start}


def read_trace(text: str) -> Order:
    """Return the order of a trace; the operations of a device are sorted by start and then by row."""
    trace = json_content(text)
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        raise InputError("must be an object with traceEvents", key="traceEvents")
    return _order_of_rows(
        _entries_of_trace([_entry(e) for e in events if isinstance(e, dict) and e.get("ph") == "X"])
    )


def _entry(event: Event) -> tuple[int, int | float, int, Operation, bool]:
    """Return device, start, row, operation, and whether the next operation runs together with it."""
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    device, time, row, name = event.get("pid"), event.get("ts"), args.get("row"), event.get("name")
    numbers = isinstance(device, int) and isinstance(row, int) and isinstance(time, int | float)
    if not numbers or not isinstance(name, str):
        rule = "an operation's event has pid, ts, name and args.row"
        raise InputError(rule, key="traceEvents", value=event)
    return event["pid"], event["ts"], args["row"], Operation.parse(name), args.get("joined") is True


def _entries_of_trace(
    entries: list[tuple[int, int | float, int, Operation, bool]],
) -> Iterator[tuple[int, Operation, bool]]:
    together = False
    for device, _, _, operation, joined in sorted(entries):
        yield device, operation, together
        together = joined
