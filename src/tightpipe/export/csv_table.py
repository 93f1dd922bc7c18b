"""``csv``: a table with a row for each operation.

A row has the device, the operation, its start, its end, and the memory that the device holds during it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from ..core.errors import InputError
from ..core.operation import Operation
from ..core.schedule import Order, Schedule
from ..core.simulate import memory_trace
from .reading import order_of_rows
from .target import ScheduleTarget

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
    """Return the `Order` in the text of a CSV table; neighbouring rows with the same times are a pair."""
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or rows[0] != _HEADER:
        shown = ",".join(rows[0]) if rows else ""
        raise InputError(f"must begin with {','.join(_HEADER)}", key="line 1", value=shown)
    return order_of_rows(_entries(rows[1:]))


def _entries(rows: list[list[str]]) -> Iterator[tuple[int, Operation, bool]]:
    times: list[str] = []
    for line, row in enumerate(rows, 2):
        if len(row) != len(_HEADER) or not row[0].isdecimal():
            raise InputError(f"must have {len(_HEADER)} fields", key=f"line {line}", value=",".join(row))
        # Every operation takes at least a tick, so on one device only joined operations have equal times.
        yield int(row[0]), Operation.parse(row[1]), times == [row[0], *row[2:4]]
        times = [row[0], *row[2:4]]


CSV = ScheduleTarget("csv", "a table: device, operation, start, end, memory", _write, _read)
