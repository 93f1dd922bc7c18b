"""``torch-csv``: the schedule file of torch.distributed.pipelining; only computations are written.

The file has one row per rank and no header. A cell is ``<stage><F|I|B|W><microbatch>``, where I is our B, and
B is a whole backward: our BW, or the only backward of a stage without B or without W. A file may fuse some
backwards and split others. Operations that run together are written ``(0F7;7B3)OVERLAP_F_B``, as in torch 2.9
and later. Files of PyTorch itself also have cells for what comes with the computations, such as
``0REDUCE_GRAD``.

Stage 0 is special in PyTorch. Its input needs no gradient, so its operation ``I`` does nothing, and its ``W``
runs the whole backward: the stage has a W alone. The option ``torch_stage0`` writes a schedule for such
costs, and the option ``merge`` fuses each B with the W behind it.

PyTorch stores losses in the sequence in which the last stage runs its F's, and looks them up by the number of
the microbatch. So the file numbers the microbatches in this sequence, in which they then have to come.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product

from ..base.errors import InputError
from ..model.instance import Instance
from ..model.microbatches import renumbered, sequence_at_the_end
from ..model.operation import Operation, OpKind
from ..model.orders import torch_stage0_instance, without_absent
from ..model.schedule import Order, Schedule, check_slot
from ..model.simulate import retime
from ..model.validate import validate
from .target import ScheduleTarget


def with_torch_stage0(schedule: Schedule) -> Schedule:
    """Return the schedule of the same order, with the best start times, without the B's of stage 0.

    Raises
    ------
    InputError
        If the order exceeds a memory limit in PyTorch, because stage 0 holds its activations until W.
    """
    instance = torch_stage0_instance(schedule.instance)
    retimed = retime(instance, without_absent(instance, schedule.order))
    for violation in validate(instance, retimed):
        raise InputError(f"without a B at stage 0, as in PyTorch, the schedule is invalid: {violation}")
    return retimed


def merge_adjacent(order: Order) -> Order:
    """Return the order with each B fused with the W that follows it, if their stage and microbatch agree.

    PyTorch runs the fused backward faster than the two operations apart, but the previous stage then waits
    for the end of both.
    """
    return Order.from_slots([_merged(slots) for slots in order.to_slots()])


def _merged(slots: list[tuple[Operation, ...]]) -> list[tuple[Operation, ...]]:
    merged: list[tuple[Operation, ...]] = []
    for slot in slots:
        last = slot[-1]
        if last.kind is OpKind.W and merged and merged[-1] == (last._replace(kind=OpKind.B),):
            merged[-1] = (last._replace(kind=OpKind.BW),)
        else:
            merged.append(slot)
    return merged


_LETTERS = {OpKind.F: "F", OpKind.B: "I", OpKind.W: "W", OpKind.BW: "B"}
_KINDS = {letter: kind for kind, letter in _LETTERS.items()}
_CELL = re.compile(r"(\d{1,9})([FIBW])(\d{1,9})", re.ASCII)
_NO_COMPUTATION = re.compile(r"\d{1,9}(UNSHARD|RESHARD|REDUCE_GRAD)", re.ASCII)
"""Cells in which weights are gathered or freed, or gradients are reduced."""
_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")


def prepare(schedule: Schedule, *, merge: bool = False, torch_stage0: bool = False) -> Schedule:
    """Return the schedule that is written, with its microbatches renumbered.

    With `merge`, each B is fused with the W of its stage and microbatch if this W follows directly; with
    `torch_stage0`, stage 0 has no B, as in PyTorch. Raise an InputError if the placement has two directions,
    a stage lacks a backward that PyTorch runs, or the schedule then exceeds a memory limit.
    """
    _check_backwards(schedule.instance)
    if len(schedule.instance.placement.routes) > 1:
        name = schedule.instance.placement.name
        raise InputError("PyTorch keeps a stage on one rank, this placement on two", value=name)
    schedule = renumbered(schedule, sequence_at_the_end(schedule))
    if merge:
        schedule = retime(schedule.instance, merge_adjacent(schedule.order))
    return with_torch_stage0(schedule) if torch_stage0 else schedule


def write(schedule: Schedule, **options: object) -> str:
    """Return the text of the file for a schedule."""
    instance = schedule.instance
    slots = [[[_as_torch(instance, op) for op in slot] for slot in row] for row in schedule.order.to_slots()]
    return "\n".join(",".join(map(_cell, row)) for row in slots) + "\n"


def _check_backwards(instance: Instance) -> None:
    """Raise an InputError if a stage lacks a backward that PyTorch runs."""
    classes = range(len(instance.class_counts))
    for stage, c in product(range(instance.stages), classes):
        if not instance.has_backward(stage, c):
            lacks = "runs a backward at every stage, this one has none"
        elif stage and not instance.has(OpKind.B, stage, c):
            lacks = "computes the gradient of the input at every stage but the first, this one has no B"
        elif instance.has(OpKind.W, stage, c) != instance.has(OpKind.W, stage, 0):
            lacks = "freezes a stage for all microbatches or for none, this one has a W for some"
        else:
            continue
        raise InputError(f"PyTorch {lacks}", key="stage", value=stage)


def _as_torch(instance: Instance, op: Operation) -> Operation:
    """Return the operation that PyTorch runs: a backward that is its stage's only one is a whole backward."""
    alone = op.kind is not OpKind.F and not instance.has(
        OpKind.BW, op.stage, instance.mb_class(op.microbatch)
    )
    return op._replace(kind=OpKind.BW) if alone else op


def read(text: str) -> Order:
    """Return the order of the computations in a file.

    Empty cells, which stand for idle time, are left out, and so are cells in which PyTorch gathers or frees
    weights or reduces gradients. Raise an InputError if a cell is another one, e.g. a message, or a rank has
    no computation.
    """
    rows = text.split("\n")
    if len(rows) > 1 and not rows[-1]:
        rows.pop()
    devices = []
    for rank, row in enumerate(rows):
        cells = [cell.strip() for cell in row.split(",")]
        slots = [_slot(cell, rank) for cell in cells if cell and not _NO_COMPUTATION.fullmatch(cell)]
        if not slots:
            raise InputError("has no operations", key=f"row {rank}", value=row)
        devices.append(slots)
    shifted = _forwards_from_one(op for slots in devices for slot in slots for op in slot)
    return Order.from_slots([[_shift(slot, shifted) for slot in slots] for slots in devices])


def _forwards_from_one(operations: Iterable[Operation]) -> set[int]:
    """Return the stages whose forwards are numbered from 1, although their backwards are numbered from 0.

    So PyTorch 2.13 writes the last stage of its own 1F1B: F1 to Fn and B0 to B(n-1), where it runs F0 to
    F(n-1). A valid order has the same numbers in both, so that no stage of a valid order is returned.
    """
    forwards: defaultdict[int, set[int]] = defaultdict(set)
    backwards: defaultdict[int, set[int]] = defaultdict(set)
    for op in operations:
        (forwards if op.kind is OpKind.F else backwards)[op.stage].add(op.microbatch)
    return {
        stage
        for stage, numbers in forwards.items()
        if numbers == set(range(1, len(numbers) + 1)) and backwards[stage] == set(range(len(numbers)))
    }


def _shift(slot: tuple[Operation, ...], stages: set[int]) -> tuple[Operation, ...]:
    return tuple(
        op._replace(microbatch=op.microbatch - 1) if op.kind is OpKind.F and op.stage in stages else op
        for op in slot
    )


def _cell(slot: Sequence[Operation]) -> str:
    cells = [f"{op.stage}{_LETTERS[op.kind]}{op.microbatch}" for op in slot]
    return cells[0] if len(cells) == 1 else f"({';'.join(cells)})OVERLAP_F_B"


def _slot(cell: str, rank: int) -> tuple[Operation, ...]:
    pair = _PAIR.fullmatch(cell)
    return check_slot(_operation(part, rank) for part in (pair.groups() if pair else (cell,)))


def _operation(cell: str, rank: int) -> Operation:
    match = _CELL.fullmatch(cell)
    if match is None:
        raise InputError("a cell is <stage><F|I|B|W><microbatch>, e.g. 7I3", key=f"row {rank}", value=cell)
    return Operation(_KINDS[match[2]], int(match[1]), int(match[3]))


TORCH_CSV = ScheduleTarget(
    "torch-csv",
    "schedule file of torch.distributed.pipelining (computations only)",
    write,
    read,
    ("merge", "torch_stage0"),
    prepare,
    sequence_at_the_end,
)
