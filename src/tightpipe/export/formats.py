"""The export targets by name: file formats of other programs, and the functions that write and read them.

Two of them are timelines. A row of the CSV file has the device, the operation, its start, its end, and the
memory that the device holds during it. The Chrome trace has a process for each device, a complete event for
each operation, a flow for each message from the operation that sends it to the one that receives it, and a
counter track for memory. One tick is one microsecond. Where microbatches differ, an event says of which class
its microbatch is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import InputError, about_file, check_choice
from ..base.files import csv_rows, json_content, read_text, write_text
from ..base.tables import csv_text
from ..drawing.palette import TRACE_NAMES
from ..model.graph_arrays import inputs_of
from ..model.instance import Instance
from ..model.microbatches import sequence_at_the_end
from ..model.operation import Operation
from ..model.orders import without_absent
from ..model.schedule import Order, Schedule, check_slot
from ..model.simulate import memory_events, memory_trace, simulate
from ..model.validate import validate
from . import layouts
from . import runtime_orders as orders
from .model_split import ModelSplit

_HEADER = ["device", "operation", "start", "end", "memory"]


def write_csv(schedule: Schedule) -> str:
    """Return the text of a CSV table with a row per operation."""
    memory = memory_trace(schedule.instance, schedule.order).tolist()
    return csv_text(_HEADER, ([*cells, memory[row]] for row, *cells in _rows(schedule)))


def read_csv(text: str) -> Order:
    """Return the `Order` in the text of a CSV table; neighbouring rows with the same times are a pair."""
    rows = csv_rows(text)
    if not rows or rows[0][1] != _HEADER:
        shown = ",".join(rows[0][1]) if rows else ""
        raise InputError(f"must begin with {','.join(_HEADER)}", key="line 1", value=shown)
    return _order_of_rows(_entries_of_csv(rows[1:]))


def _entries_of_csv(rows: list[tuple[int, list[str]]]) -> Iterator[tuple[int, Operation, bool]]:
    times: list[str] = []
    for line, row in rows:
        if len(row) != len(_HEADER) or not row[0].isdecimal():
            raise InputError(f"must have {len(_HEADER)} fields", key=f"line {line}", value=",".join(row))
        # what takes time ends after the operation before it, so of such only joined ones have equal times
        yield int(row[0]), Operation.parse(row[1]), times == [row[0], *row[2:4]] and row[2] != row[3]
        times = [row[0], *row[2:4]]


def _order_of_rows(rows: Iterable[tuple[int, Operation, bool]]) -> Order:
    """Return the order of rows: device, operation, and whether it runs together with the row before."""
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
    for device, (times, held) in enumerate(memory_events(schedule)):
        # of equal times the last counts
        levels = {0: 0} | dict(zip(times.tolist(), held.tolist(), strict=True))
        for (_, before), (time, level) in pairwise([(0, -1), *levels.items()]):
            if level != before:
                yield {"ph": "C", "name": "memory", "pid": device, "ts": time, "args": {"held": level}}


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


@dataclass(frozen=True, slots=True)
class Target:
    """A file format of another program, for schedules or for cuts of models."""

    name: str  #: as given to `export` and on the command line
    write: Callable[..., str]  #: returns the text of what `prepare` returns, or raises an InputError
    read: Callable[[str], Any]  #: returns the order or the cut that the text of a file describes
    options: tuple[str, ...] = ()  #: names of those that `prepare` and `write` take
    #: returns what is written of a schedule or a cut
    prepare: Callable[..., Any] = lambda content, **_: content
    #: returns the microbatches in the sequence in which the file numbers them and takes their data
    sequence: Callable[[Schedule], list[int]] = lambda schedule: list(range(schedule.instance.microbatches))

    def check_options(self, options: Mapping[str, object]) -> None:
        """Raise an InputError if `options` has an option that the target does not take."""
        for name, value in options.items():
            if name not in self.options:
                taken = ", ".join(self.options) or "none"
                rule = f"{self.name} has no such option; it takes {taken}"
                raise InputError(rule, key=name, value=value)


_TORCH = orders.write_torch, orders.read_torch, ("merge", "torch_stage0")
_MEGATRON = orders.write_megatron, orders.read_megatron, ()
_COLOSSALAI = orders.write_colossalai, orders.read_colossalai, ("validation",)
EXPORTS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("torch-csv", *_TORCH, orders.prepare_torch, sequence_at_the_end),
        Target("megatron-json", *_MEGATRON, orders.prepare_megatron, orders.sequence_of),
        Target("colossalai-json", *_COLOSSALAI, orders.prepare_colossalai, orders.sequence_of),
        Target("chrome-trace", write_trace, read_trace),
        Target("csv", write_csv, read_csv),
    )
}
"""The targets for schedules by name."""

SPLITS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("torchtitan", layouts.write_torchtitan, layouts.read_torchtitan),
        Target("megatron-layout", layouts.write_megatron, layouts.read_megatron, ("layout_only",)),
    )
}
"""The targets for cuts of models by name."""


def export(content: Schedule | ModelSplit, target: str, path: str | Path, **options: Any) -> None:
    """Write a schedule, which is validated before, or the cut of a model as a file of another program.

    Parameters
    ----------
    content
        Schedule to write, or parts, device and recomputation of each stage.
    target
        Name of the file format in `EXPORTS`, or in `SPLITS` for a cut.
    path
        File to write.
    options
        Options of the target, e.g. ``merge=True`` for ``torch-csv``.

    Raises
    ------
    DeadlockError
        If operations wait for each other in a circle; the message names them.
    InputError
        If the schedule is invalid, the other program cannot run the schedule or express the cut, the target
        or an option is unknown, or the file cannot be written.
    """
    write_text(path, export_text(content, target, **options))


def export_text(content: Schedule | ModelSplit, target: str, **options: Any) -> str:
    """Return the text that `export` writes; raise errors as `export` does."""
    if isinstance(content, ModelSplit):
        return _text(content, _find(target, SPLITS), options)
    chosen = _find(target, EXPORTS)
    chosen.check_options(options)
    content.instance.refuse_slices("another program")
    content.refuse_copies("another program")
    _check_valid(content)
    return _text(content, chosen, options)


def data_sequence(schedule: Schedule, target: str) -> list[int]:
    """Return the microbatches of a schedule in the sequence in which another program takes their data.

    An exported file has the microbatch at place k under the number k, and the other program runs it with the
    k-th microbatch of its data.

    Raise an InputError if the target is unknown, or the other program takes all microbatches in one sequence
    and the schedule has no such sequence.
    """
    return _find(target, EXPORTS).sequence(schedule)


def import_order(
    path: str | Path, target: str, instance: Instance | None = None, sequence: Sequence[int] | None = None
) -> Order:
    """Return the order of an exported file.

    Parameters
    ----------
    path
        File to read.
    target
        Name of the file format in `EXPORTS`.
    instance
        The instance that the order is for. Backwards that it does not have, such as the B of stage 0, for
        which PyTorch does nothing, are left out, and a BW is what its stage has of it. None keeps all.
    sequence
        Which microbatches the file has under the numbers 0, 1 and so on, as `data_sequence` returns them.
        None keeps the numbers of the file.

    Raises
    ------
    InputError
        If the target is unknown, the file is not of its format, or `sequence` does not have the numbers of
        the file's microbatches.
    """
    order: Order = _read(path, _find(target, EXPORTS))
    if sequence is not None:
        order = _with_numbers(order, sequence)
    return order if instance is None else without_absent(instance, order)


def read_split(path: str | Path, target: str) -> ModelSplit:
    """Return the cut of a model that an exported file describes.

    Raise an InputError if the target is unknown or the file is not of its format.
    """
    split: ModelSplit = _read(path, _find(target, SPLITS))
    return split


def _with_numbers(order: Order, sequence: Sequence[int]) -> Order:
    count = 1 + int(order.operations[:, 2].max(initial=-1))
    if sorted(sequence) != list(range(count)):
        rule = f"must have each of the microbatches 0..{count - 1} of the file once"
        raise InputError(rule, key="sequence", value=list(sequence))
    operations = order.operations.copy()
    operations[:, 2] = np.array(sequence, np.int64)[operations[:, 2]]
    return Order(operations, order.offsets, order.pairs)


def _find(name: str, targets: Mapping[str, Target]) -> Target:
    check_choice("target", name, *targets)
    return targets[name]


def _text(content: Any, target: Target, options: dict[str, Any]) -> str:
    target.check_options(options)
    prepared = target.prepare(content, **options)
    text = target.write(prepared, **options)
    if not _agree(prepared, target.read(text), options):
        raise AssertionError(f"{target.name} does not read back as it was written")
    return text


def _agree(written: Schedule | ModelSplit, read: Order | ModelSplit, options: dict[str, Any]) -> bool:
    """Return whether a file says what was written, as far as its format says it."""
    if isinstance(written, Schedule):
        return isinstance(read, Order) and without_absent(written.instance, read) == written.order
    assert isinstance(read, ModelSplit)
    if options.get("layout_only"):  # such a text does not say what is recomputed
        read = replace(read, recomputed=written.recomputed)
    if read.microbatches is None:  # nor do the arguments of Megatron-LM say microbatches or data parallelism
        read = replace(read, microbatches=written.microbatches, shards=written.shards)
    return read == written


def _read(path: str | Path, target: Target) -> Any:
    with about_file(path):
        return target.read(read_text(path))


def _check_valid(schedule: Schedule) -> None:
    """Raise an error unless the schedule is complete, free of deadlock and valid."""
    violations = validate(schedule.instance, schedule)
    incomplete = [v for v in violations if v.rule in ("complete", "placement")]
    if not incomplete:
        simulate(schedule.instance, schedule.order)  # its error for a deadlock says more than the violations
    for violation in incomplete or violations:
        raise InputError(f"not exported, the schedule is invalid: {violation}")
