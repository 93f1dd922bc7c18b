"""``csv``: device, operation, start, end and memory of every operation."""

from __future__ import annotations

import csv
import io

from ..errors import InputError
from ..operation import Operation
from ..schedule import Order, Schedule
from ..simulate import memory_trace
from .target import Target, unchanged

_HEADER = ["device", "operation", "start", "end", "memory"]


def _write(schedule: Schedule) -> str:
    order, memory = schedule.order, memory_trace(schedule.instance, schedule.order).tolist()
    start, end = schedule.start.tolist(), schedule.end.tolist()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADER)
    row = 0
    for device, operations in enumerate(order.to_lists()):
        for op in operations:
            writer.writerow([device, op, start[row], end[row], memory[row]])
            row += 1
    return out.getvalue()


def _read(text: str) -> Order:
    """Return the order; operations of a device with the same times run together."""
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or rows[0] != _HEADER:
        shown = ",".join(rows[0]) if rows else ""
        raise InputError(f"must begin with {','.join(_HEADER)}", key="line 1", value=shown)
    slots: list[list[list[Operation]]] = []
    last: list[str] = []
    for line, row in enumerate(rows[1:], 2):
        device = _device(row, line, len(slots))
        if device == len(slots):
            slots.append([])
        operation = Operation.parse(row[1])
        if last[2:4] == row[2:4] and last[0] == row[0]:
            slots[device][-1].append(operation)
        else:
            slots[device].append([operation])
        last = row
    return Order.from_slots(slots)


def _device(row: list[str], line: int, seen: int) -> int:
    if len(row) != len(_HEADER) or not row[0].isdecimal() or int(row[0]) not in (seen, seen - 1):
        rule = f"must have {len(_HEADER)} fields, the devices one after another from 0"
        raise InputError(rule, key=f"line {line}", value=",".join(row))
    return int(row[0])


CSV = Target("csv", "a table: device, operation, start, end, memory", unchanged, _write, _read)
