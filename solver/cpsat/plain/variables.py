"""Variables of the plain formulation: a start time and an interval per operation."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.instance import Instance
from tightpipe.operation import Operation, OpKind

KINDS = (OpKind.F, OpKind.B, OpKind.W)


class Variables:
    """Start times and intervals by operation, and the time at which each device begins.

    Parameters
    ----------
    model
        Receives the variables.
    instance
        The problem.
    latest
        No operation needs to end later than this.
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
        self.begin = [model.new_int_var(0, latest, f"begin{d}") for d in range(instance.devices)]
