"""Orders for the runtimes of other programs: ``torch-csv``, ``megatron-json`` and ``colossalai-json``.

**torch-csv** is the schedule file of torch.distributed.pipelining: only computations, one row per rank and no
header. A cell is ``<stage><F|I|B|W><microbatch>``, where I is our B, and B is a whole backward: our BW, or
the only backward of a stage without B or without W. Operations that run together are written
``(0F7;7B3)OVERLAP_F_B``, as in torch 2.9 and later. At stage 0, whose input needs no gradient, ``I`` does
nothing and ``W`` runs the whole backward. PyTorch stores losses in the sequence in which the last stage runs
its F's, and looks them up by the number of the microbatch, so the file numbers them in this sequence.

**megatron-json and colossalai-json** are the lists of nodes that the zero-bubble runtimes run, one for each
device. The first format is for sail-sg's zero-bubble fork of Megatron, which adds communication itself, the
second for ColossalAI, which takes it from the list. Both keep tensors in queues, and take the data of the
microbatches in the sequence in which they run. So microbatches that differ must run in one sequence, in which
the file numbers them.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from ..base.errors import InputError, check_int
from ..base.files import json_content
from ..model.instance import MOST_OPERATIONS, Instance
from ..model.microbatches import renumbered, sequence_at_the_end
from ..model.operation import Operation, OpKind
from ..model.orders import torch_stage0_instance, without_absent
from ..model.placement import Placement
from ..model.schedule import Order, Schedule, check_slot
from ..model.simulate import retime
from ..model.validate import validate
from ..program import Node, NodeType, Program, lower


def with_torch_stage0(schedule: Schedule) -> Schedule:
    """Return the schedule of the same order, with the best start times, without the B's of stage 0.

    Raise an InputError if the order exceeds a memory limit in PyTorch, because stage 0 holds its activations
    until W.
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


def prepare_torch(schedule: Schedule, *, merge: bool = False, torch_stage0: bool = False) -> Schedule:
    """Return the schedule that is written, with its microbatches renumbered."""
    _check_iterations(schedule.instance, "PyTorch")
    _check_backwards(schedule.instance)
    if len(schedule.instance.placement.routes) > 1:
        name = schedule.instance.placement.name
        raise InputError("PyTorch keeps a stage on one rank, this placement on two", value=name)
    schedule = renumbered(schedule, sequence_at_the_end(schedule))
    if merge:
        schedule = retime(schedule.instance, merge_adjacent(schedule.order))
    return with_torch_stage0(schedule) if torch_stage0 else schedule


def write_torch(schedule: Schedule, **options: object) -> str:
    """Return the text of the file for a schedule."""
    instance = schedule.instance
    slots = [[[_as_torch(instance, op) for op in slot] for slot in row] for row in schedule.order.to_slots()]
    return "\n".join(",".join(map(_cell, row)) for row in slots) + "\n"


def _check_iterations(instance: Instance, runtime: str) -> None:
    if instance.iterations > 1:  # the file would be one long step, without the optimizer in between
        rule = f"must be 1, as a file of {runtime} is one training step"
        raise InputError(rule, key="iterations", value=instance.iterations)


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


def read_torch(text: str) -> Order:
    """Return the order of the computations in a file, without idle cells and those about weights."""
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


StageOf = Callable[[dict[str, Any], int], int]
"""Function that returns the stage of a node, given the node and the number of devices."""


def prepare_megatron(schedule: Schedule) -> Schedule:
    """Return the schedule that sail-sg's runtime runs, with its microbatches renumbered."""
    _check(schedule, "the zero-bubble runtime", "linear", "loop", "v")
    kind, _, microbatch = schedule.order.operations.T
    partly = np.intersect1d(microbatch[kind == OpKind.B], microbatch[kind == OpKind.BW])
    if partly.size:
        rule = "the zero-bubble runtime fuses all backwards of a microbatch or none"
        raise InputError(rule, key="microbatch", value=int(partly[0]))
    return renumbered(schedule, sequence_of(schedule))


def prepare_colossalai(schedule: Schedule, *, validation: bool = False) -> Schedule:
    """Return the schedule that ColossalAI runs, with its microbatches renumbered."""
    _check(schedule, "ColossalAI", "v")
    if (schedule.order.operations[:, 0] == OpKind.BW).any():
        raise InputError("ColossalAI's node lists split the backward into B and W", value="BW")
    return renumbered(schedule, sequence_of(schedule))


def _check(schedule: Schedule, runtime: str, *placements: str) -> None:
    _check_iterations(schedule.instance, runtime)
    if schedule.order.pairs.any():
        raise InputError(f"{runtime} runs operations one after another, this schedule has pairs")
    if (name := schedule.instance.placement.name) not in placements:
        rule = f"must be one that {runtime} runs: {', '.join(placements)}"
        raise InputError(rule, key="placement", value=name)
    if name == "linear" and schedule.instance.placement.stages_per_device > 1:
        rule = f"{runtime} runs several stages on a device as a loop or a V only"
        raise InputError(rule, key="chunks", value=schedule.instance.placement.stages_per_device)
    if not schedule.instance.complete:
        raise InputError(f"{runtime} computes both gradients at every stage", key="backward, weight", value=0)


def sequence_of(schedule: Schedule) -> list[int]:
    """Return the microbatches in the one sequence in which they run, if they differ."""
    instance = schedule.instance
    if instance.alike:
        return list(range(instance.microbatches))
    if len(instance.placement.routes) > 1:
        rule = "zero-bubble runtimes take microbatches that differ in one direction only"
        raise InputError(rule, key="placement", value=instance.placement.name)
    kind, stage, microbatch = schedule.order.operations.T
    backward = (kind == OpKind.B) | (kind == OpKind.BW)
    sequence: list[int] = microbatch[(kind == OpKind.F) & (stage == 0)].tolist()
    for s, (name, among) in product(
        range(instance.stages), (("F", kind == OpKind.F), ("B", backward), ("W", kind == OpKind.W))
    ):
        ran = microbatch[among & (stage == s)].tolist()
        there = set(ran)
        due = [m for m in sequence if m in there]
        if ran != due:
            m, other = next((a, b) for a, b in zip(ran, due, strict=True) if a != b)
            rule = (
                "zero-bubble runtimes run microbatches in one sequence at every stage, "
                f"and stage 0 begins {other} before {m}"
            )
            raise InputError(rule, value=f"{name}{s}.{m} before {name}{s}.{other}")
    return sequence


def write_megatron(schedule: Schedule) -> str:
    """Return the text of the nodes that compute."""

    def place(node: Node) -> dict[str, int]:
        about = {"stage": node.device, "microbatch": node.microbatch}
        return about | {"chunk": node.chunk, "layer_group_idx": node.stage}

    return _text(lower(schedule, validation=False), lambda node: node.type.is_compute, place)


def write_colossalai(schedule: Schedule, *, validation: bool = False) -> str:
    """Return the text of all nodes."""

    def place(node: Node) -> dict[str, int]:
        return {"chunk": node.chunk, "stage": node.device, "minibatch": node.microbatch}

    return _text(lower(schedule, validation=validation), lambda node: True, place)


def _text(program: Program, wanted: Callable[[Node], bool], place: Callable[[Node], dict[str, int]]) -> str:
    def entry(node: Node) -> dict[str, Any]:
        times = {"start_time": node.start, "completion_time": node.end}
        return {"type": str(node.type), **place(node), **times, "rollback": node.rollback}

    devices = [[entry(node) for node in nodes if wanted(node)] for nodes in program.devices]
    rows = ["[\n" + ",\n".join(map(json.dumps, nodes)) + "\n]" for nodes in devices]
    return "[\n" + ",\n".join(rows) + "\n]\n"


def read_megatron(text: str) -> Order:
    """Return the order of the nodes in a text."""
    return _read(text, "microbatch", lambda node, _: _integer(node, "layer_group_idx"))


def read_colossalai(text: str) -> Order:
    """Return the order of the nodes in a text."""

    def stage(node: dict[str, Any], devices: int) -> int:
        device, chunk = _integer(node, "stage", devices), _integer(node, "chunk", 2)
        return Placement("v", devices).stages_on(device)[chunk]

    return _read(text, "minibatch", stage)


def _read(text: str, microbatch: str, stage_of: StageOf) -> Order:
    devices = json_content(text)
    if not devices or not isinstance(devices, list) or not all(isinstance(n, list) for n in devices):
        raise InputError("must be a list of node lists, one per device")
    return Order.from_lists(
        [
            [
                Operation(OpKind[node["type"]], stage_of(node, len(devices)), _integer(node, microbatch))
                for node in nodes
                if _is_compute(node)
            ]
            for nodes in devices
        ]
    )


def _is_compute(node: Any) -> bool:
    kind = node.get("type") if isinstance(node, dict) else None
    if not isinstance(kind, str) or kind not in NodeType.__members__:
        rule = f"a node must be an object whose type is one of {', '.join(NodeType)}"
        raise InputError(rule, value=node)
    return kind in OpKind.__members__


def _integer(node: dict[str, Any], key: str, below: int = MOST_OPERATIONS) -> int:
    value = check_int(key, node.get(key), 0)
    if value >= below:
        raise InputError(f"must be less than {below}", key=key, value=value)
    return value
