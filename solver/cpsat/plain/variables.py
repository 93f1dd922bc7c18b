"""The variables of the plain model: start times and intervals of operations, and departures of messages."""

from __future__ import annotations

from itertools import combinations

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind

from .joint import Joint
from .operations import operations_of, receiver


class Variables:
    """The variables of the plain model.

    There are variables for the start time and the interval of each operation, for which operations run as
    one (`Joint`), and for the time at which each device begins. For links on which messages may have to wait,
    there are also the time at which each message leaves and, for any two operations that send over such a
    link, whether the first runs before the second.

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
        self.intervals: dict[int, list[cp_model.IntervalVar]] = {}  # of each device
        self.joint = Joint(model, instance)
        for op in operations_of(instance):
            self._add_intervals(model, instance, op)
        self._add_joint_intervals(model, instance)
        self.links = _links(instance)
        self.departure = {op: model.new_int_var(0, latest, f"d{op}") for link in self.links for op in link}
        self.precedes = {
            pair: model.new_bool_var(f"o{pair[0]}<{pair[1]}")
            for link in self.links
            for pair in combinations(link, 2)
        }
        self.begin = [model.new_int_var(0, latest, f"begin{d}") for d in range(instance.devices)]

    def _add_intervals(self, model: cp_model.CpModel, instance: Instance, op: Operation) -> None:
        """Add the start and the end of an operation, and its interval for the case that it runs alone."""
        took, alone = instance.duration(op.kind, op.stage), self.joint.alone.get(op)
        # A W in a BW ends with it, and so starts before it if a BW is shorter than the W.
        early, least = (0, took) if alone is None else (-took, 0)
        start = self.start[op] = model.new_int_var(early, self.latest - least, f"s{op}")
        longer = 0 if op.kind is OpKind.W else self.joint.longer(instance, op)
        self.end[op] = start + took + longer
        if alone is None:
            interval = model.new_fixed_size_interval_var(start, took, f"i{op}")
        else:
            interval = model.new_optional_fixed_size_interval_var(start, took, alone, f"i{op}")
        self.intervals.setdefault(instance.device(op.stage, op.microbatch), []).append(interval)

    def _add_joint_intervals(self, model: cp_model.CpModel, instance: Instance) -> None:
        joint = self.joint
        fused = [(b, instance.duration(OpKind.BW, b.stage), literal) for b, literal in joint.fused.items()]
        paired = [(f, _together(instance, f), literal) for (f, _), literal in joint.pairs.items()]
        for op, took, literal in (*fused, *paired):
            interval = model.new_optional_fixed_size_interval_var(self.start[op], took, literal, f"j{op}")
            self.intervals[instance.device(op.stage, op.microbatch)].append(interval)


def _together(instance: Instance, op: Operation) -> int:
    ticks = instance.overlapped(instance.device(op.stage, op.microbatch))
    assert ticks is not None
    return ticks


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
