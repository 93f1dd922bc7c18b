"""The objective of the plain model: a cost that is at least as large as every span."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind

from .variables import Variables


def bound_spans(
    model: cp_model.CpModel, instance: Instance, variables: Variables, cost: cp_model.LinearExprT
) -> None:
    """Require that the makespan, or the span of every device, is at most `cost`.

    Constraints on F's and W's are enough, because the first operation of a device is an F and its last one a
    W. The makespan counts from time 0.
    """
    for op, start in variables.start.items():
        begin = variables.begin[instance.device(op.stage, op.microbatch)]
        if op.kind is OpKind.F:
            model.add(begin <= start)
        if op.kind is OpKind.W:
            model.add(start + instance.duration(op.kind, op.stage) - begin <= cost)
    if instance.whole:
        for begin in variables.begin:
            model.add(begin == 0)
