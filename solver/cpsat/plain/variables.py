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
    device begins. For links on which messages may have to wait, there are also the time at which each message
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
        self.start: dict[Operation, cp_model.IntVar] = {}
        self.interval: dict[Operation, cp_model.IntervalVar] = {}
        for kind in KINDS:
            for s in range(instance.stages):
                for m in range(instance.microbatches):
                    op, took = Operation(kind, s, m), instance.duration(kind, s)
                    self.start[op] = model.new_int_var(0, latest - took, f"s{op}")
                    self.interval[op] = model.new_fixed_size_interval_var(self.start[op], took, f"i{op}")
        self.links = _links(instance)
        self.departure = {op: model.new_int_var(0, latest, f"d{op}") for link in self.links for op in link}
        self.precedes = {
            pair: model.new_bool_var(f"o{pair[0]}<{pair[1]}")
            for link in self.links
            for pair in combinations(link, 2)
        }
        self.begin = [model.new_int_var(0, latest, f"begin{d}") for d in range(instance.devices)]


def receiver(instance: Instance, op: Operation) -> Operation | None:
    """Return the operation on another device that receives a message of `op`, None if `op` sends none."""
    stage = op.stage + 1 if op.kind is OpKind.F else op.stage - 1
    if op.kind is OpKind.W or not 0 <= stage < instance.stages:
        return None
    apart = instance.device(stage, op.microbatch) != instance.device(op.stage, op.microbatch)
    return Operation(op.kind, stage, op.microbatch) if apart else None


def _links(instance: Instance) -> list[list[Operation]]:
    """Return the sending operations of each directed link on which a message may have to wait."""
    found: dict[tuple[int, int], list[Operation]] = {}
    for kind in (OpKind.F, OpKind.B):
        for s in range(instance.stages):
            for m in range(instance.microbatches):
                after = receiver(instance, Operation(kind, s, m))
                if after is not None:
                    link = instance.device(s, m), instance.device(after.stage, m)
                    found.setdefault(link, []).append(Operation(kind, s, m))
    busy = instance.costs.link_occupancy
    return [
        link for link in found.values() if any(instance.duration(op.kind, op.stage) < busy for op in link)
    ]
