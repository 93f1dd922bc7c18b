"""The literals of the plain model that say which operations run as one."""

from __future__ import annotations

from itertools import product

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind

from .operations import operations_of


class Joint:
    """Which operations run as one.

    A B may be fused with its W where that is shorter than one after the other. An F may run together with the
    fused backward of another microbatch, as a pair, on a device that has a time for pairs. (An F and a
    backward of one microbatch wait for each other.)

    Attributes
    ----------
    fused
        For each B that may be fused in no pair, whether it is.
    pairs
        For each F and each B of its device that may run as a pair, whether they do.
    alone
        For each F, B and W that may run jointly, whether it runs alone. A B and its W share the literal.
    """

    def __init__(self, model: cp_model.CpModel, instance: Instance) -> None:
        self.fused: dict[Operation, cp_model.IntVar] = {}
        self.pairs: dict[tuple[Operation, Operation], cp_model.IntVar] = {}
        self.alone: dict[Operation, cp_model.IntVar] = {}
        joined: dict[Operation, list[cp_model.IntVar]] = {}
        for f, b in _possible_pairs(instance):
            self.pairs[f, b] = literal = model.new_bool_var(f"{f}+{b}")
            joined.setdefault(f, []).append(literal)
            joined.setdefault(b, []).append(literal)
        for op in operations_of(instance):
            if op.kind is OpKind.B and fusing_saves(instance, op.stage):
                self.fused[op] = literal = model.new_bool_var(f"fused{op}")
                joined.setdefault(op, []).append(literal)
        for op, literals in joined.items():
            self.alone[op] = model.new_bool_var(f"alone{op}")
            model.add_exactly_one(self.alone[op], *literals)
            if op.kind is OpKind.B:
                self.alone[op._replace(kind=OpKind.W)] = self.alone[op]

    def longer(self, instance: Instance, op: Operation) -> cp_model.LinearExpr:
        """Return by how many ticks an F or B takes longer than alone; negative if it takes less."""
        took, device = instance.duration(op.kind, op.stage), instance.device(op.stage, op.microbatch)
        terms: list[cp_model.LinearExpr] = []
        if op in self.fused:
            terms.append((instance.duration(OpKind.BW, op.stage) - took) * self.fused[op])
        together = instance.overlapped(device)
        if together is not None:
            terms += [(together - took) * literal for pair, literal in self.pairs.items() if op in pair]
        return cp_model.LinearExpr.sum(terms)


def fusing_saves(instance: Instance, stage: int) -> bool:
    """Return whether a BW at this stage takes less time than its B and its W one after the other."""
    if not instance.has(OpKind.BW, stage):
        return False
    both, b, w = (instance.duration(kind, stage) for kind in (OpKind.BW, OpKind.B, OpKind.W))
    return both < b + w


def _possible_pairs(instance: Instance) -> list[tuple[Operation, Operation]]:
    found = []
    for device in range(instance.devices):
        if instance.overlapped(device) is None:
            continue
        held = [op for op in operations_of(instance) if instance.device(op.stage, op.microbatch) == device]
        forward = [op for op in held if op.kind is OpKind.F]
        backward = [op for op in held if op.kind is OpKind.B and instance.has(OpKind.W, op.stage)]
        found += [(f, b) for f, b in product(forward, backward) if f.microbatch != b.microbatch]
    return found
