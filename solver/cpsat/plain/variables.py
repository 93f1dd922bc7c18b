"""The variables of the plain model: start times and intervals of operations, and departures of messages."""

from __future__ import annotations

from itertools import combinations

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind

KINDS = (OpKind.F, OpKind.B, OpKind.W)


class Variables:
    """The variables of the plain model.

    There are variables for the start time and the interval of each operation, and for the time at which each
    device begins. Where a fused backward is shorter than its B and its W, there is a variable that says
    whether a microbatch has one. A B that is fused takes as long as both and has another interval. Its W has
    none then, and ends with it. For links on which messages may have to wait, there are also the time at which each message
    leaves and, for any two operations that send over such a link, whether the first runs before the second.

    Parameters
    ----------
    model
        The CP-SAT model that receives the variables.
    instance
        The problem.
    latest
        The model contains only schedules whose operations have all ended by this time, in ticks.
    """

    def __init__(self, model: cp_model.CpModel, instance: Instance, latest: int) -> None:
        self.latest = latest
        self.start: dict[Operation, cp_model.IntVar] = {}
        self.end: dict[Operation, cp_model.LinearExpr] = {}
        self.interval: dict[Operation, cp_model.IntervalVar] = {}
        self.joint: dict[Operation, cp_model.IntervalVar] = {}  # of a B that is fused
        self.fused: dict[Operation, cp_model.BoolVarT] = {}  # of a B and of its W, the same variable
        for op in operations_of(instance):
            took = instance.duration(op.kind, op.stage)
            self.start[op] = model.new_int_var(0, latest - took, f"s{op}")
            self._add_interval(model, instance, op, took)
        self.links = _links(instance)
        self.departure = {op: model.new_int_var(0, latest, f"d{op}") for link in self.links for op in link}
        self.precedes = {
            pair: model.new_bool_var(f"o{pair[0]}<{pair[1]}")
            for link in self.links
            for pair in combinations(link, 2)
        }
        self.begin = [model.new_int_var(0, latest, f"begin{d}") for d in range(instance.devices)]

    def _add_interval(self, model: cp_model.CpModel, instance: Instance, op: Operation, took: int) -> None:
        start, backward = self.start[op], op._replace(kind=OpKind.B)
        saved = took_apart(instance, op.stage) - instance.duration(OpKind.BW, op.stage)
        if op.kind is OpKind.B and instance.has(OpKind.W, op.stage) and saved > 0:
            self.fused[op] = model.new_bool_var(f"fused{op}")
            both, literal = instance.duration(OpKind.BW, op.stage), self.fused[op]
            self.end[op] = start + took + (both - took) * literal
            self.interval[op] = model.new_optional_fixed_size_interval_var(start, took, ~literal, f"i{op}")
            self.joint[op] = model.new_optional_fixed_size_interval_var(start, both, literal, f"j{op}")
        elif op.kind is OpKind.W and backward in self.fused:
            self.fused[op], self.end[op] = self.fused[backward], start + took
            alone = ~self.fused[op]
            self.interval[op] = model.new_optional_fixed_size_interval_var(start, took, alone, f"i{op}")
        else:
            self.end[op] = start + took
            self.interval[op] = model.new_fixed_size_interval_var(start, took, f"i{op}")


def operations_of(instance: Instance) -> list[Operation]:
    """Return every F, B and W of an instance."""
    stages, microbatches = range(instance.stages), range(instance.microbatches)
    return [Operation(k, s, m) for k in KINDS for s in stages if instance.has(k, s) for m in microbatches]


def ends_stage(instance: Instance, op: Operation) -> bool:
    """Return whether an operation is the last one of its microbatch at its stage."""
    later = range(op.kind + 1, OpKind.BW)
    return not any(instance.has(OpKind(kind), op.stage) for kind in later)


def took_apart(instance: Instance, stage: int) -> int:
    """Return how long B and W of a stage take one after the other, in ticks."""
    return instance.duration(OpKind.B, stage) + instance.duration(OpKind.W, stage)


def gradient_at(instance: Instance, stage: int, microbatch: int) -> Operation | None:
    """Return the operation that waits for the gradient at a stage: B, or W without B; None without both."""
    for kind in (OpKind.B, OpKind.W):
        if instance.has(kind, stage):
            return Operation(kind, stage, microbatch)
    return None


def receiver(instance: Instance, op: Operation) -> Operation | None:
    """Return the operation on another device that receives a message of `op`, None if `op` sends none."""
    stage = op.stage + 1 if op.kind is OpKind.F else op.stage - 1
    if op.kind is OpKind.W or not 0 <= stage < instance.stages:
        return None
    apart = instance.device(stage, op.microbatch) != instance.device(op.stage, op.microbatch)
    if not apart:
        return None
    is_forward = op.kind is OpKind.F
    return op._replace(stage=stage) if is_forward else gradient_at(instance, stage, op.microbatch)


def _links(instance: Instance) -> list[list[Operation]]:
    """Return the sending operations of each directed link on which a message may have to wait."""
    found: dict[tuple[int, ...], list[Operation]] = {}
    for op in operations_of(instance):
        after = receiver(instance, op)
        if after is not None:
            link = tuple(instance.device(one.stage, op.microbatch) for one in (op, after))
            found.setdefault(link, []).append(op)
    busy = instance.costs.link_occupancy
    return [
        link for link in found.values() if any(instance.duration(op.kind, op.stage) < busy for op in link)
    ]
