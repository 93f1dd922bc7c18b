"""``megatron-json`` and ``colossalai-json``: the lists of nodes that the zero-bubble runtimes run.

A file has one list for each device, with its nodes in sequence. Both runtimes ignore the times of the
nodes. The first format is for sail-sg's zero-bubble fork of Megatron, which adds communication itself; the
second is for ColossalAI, which takes communication from the list.

Both runtimes keep tensors in queues, and take the data of the microbatches in the sequence in which they run.
So microbatches that differ must run in one sequence, in which the file numbers them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any

from ..base.errors import InputError, check_int
from ..model.instance import MOST_OPERATIONS
from ..model.microbatches import renumbered
from ..model.operation import Operation, OpKind
from ..model.placement import Placement
from ..model.schedule import Order, Schedule
from ..program import Node, NodeType, Program, lower
from .target import ScheduleTarget, as_numbered, json_content

StageOf = Callable[[dict[str, Any], int], int]
"""Function that returns the stage of a node, given the node and the number of devices."""


def _prepare_megatron(schedule: Schedule) -> Schedule:
    _check(schedule, "the zero-bubble runtime")
    return renumbered(schedule, _sequence_of(schedule))


def _prepare_colossalai(schedule: Schedule, *, validation: bool = False) -> Schedule:
    _check(schedule, "ColossalAI")
    if schedule.instance.placement.name != "v":
        name = schedule.instance.placement.name
        raise InputError("ColossalAI walks node lists for V placement alone", key="placement", value=name)
    if (schedule.order.operations[:, 0] == OpKind.BW).any():
        raise InputError("ColossalAI's node lists split the backward into B and W", value="BW")
    return renumbered(schedule, _sequence_of(schedule))


def _check(schedule: Schedule, runtime: str) -> None:
    if schedule.order.pairs.any():
        raise InputError(f"{runtime} runs operations one after another, this schedule has pairs")
    if not schedule.instance.complete:
        raise InputError(f"{runtime} computes both gradients at every stage", key="backward, weight", value=0)


def _sequence_of(schedule: Schedule) -> list[int]:
    """Return the microbatches in the one sequence in which they run, if they differ.

    Raise an InputError if they differ and have no such sequence, or take two routes.
    """
    instance = schedule.instance
    if instance.alike:
        return as_numbered(schedule)
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


def _write_megatron(schedule: Schedule) -> str:
    program = lower(schedule, validation=False)
    return _text(program, lambda node: node.type.is_compute, _megatron_node)


def _write_colossalai(schedule: Schedule, *, validation: bool = False) -> str:
    return _text(lower(schedule, validation=validation), lambda node: True, _colossalai_node)


def _text(program: Program, wanted: Callable[[Node], bool], entry: Callable[[Node], dict[str, Any]]) -> str:
    devices = [[entry(node) for node in nodes if wanted(node)] for nodes in program.devices]
    rows = ["[\n" + ",\n".join(map(json.dumps, nodes)) + "\n]" for nodes in devices]
    return "[\n" + ",\n".join(rows) + "\n]\n"


def _megatron_node(node: Node) -> dict[str, Any]:
    return {
        "type": str(node.type),
        "stage": node.device,
        "microbatch": node.microbatch,
        "chunk": node.chunk,
        "layer_group_idx": node.stage,
        "start_time": node.start,
        "completion_time": node.end,
        "rollback": node.rollback,
    }


def _colossalai_node(node: Node) -> dict[str, Any]:
    return {
        "type": str(node.type),
        "chunk": node.chunk,
        "stage": node.device,
        "minibatch": node.microbatch,
        "start_time": node.start,
        "completion_time": node.end,
        "rollback": node.rollback,
    }


def _read_megatron(text: str) -> Order:
    return _read(text, "microbatch", lambda node, _: _integer(node, "layer_group_idx"))


def _read_colossalai(text: str) -> Order:
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


MEGATRON_JSON = ScheduleTarget(
    "megatron-json",
    "compute nodes for sail-sg's zero-bubble Megatron, which adds communication itself",
    _write_megatron,
    _read_megatron,
    prepare=_prepare_megatron,
    sequence=_sequence_of,
)

COLOSSALAI_JSON = ScheduleTarget(
    "colossalai-json",
    "nodes with communication for ColossalAI's zbv schedule (scheduler_nodes)",
    _write_colossalai,
    _read_colossalai,
    ("validation",),
    _prepare_colossalai,
    _sequence_of,
)
