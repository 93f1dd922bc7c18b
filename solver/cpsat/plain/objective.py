"""The objective of the plain model: a cost that is at least as large as every span."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind

from .operations import ends_stage
from .variables import Variables


def bound_spans(
    model: cp_model.CpModel, instance: Instance, variables: Variables, cost: cp_model.LinearExprT
) -> None:
    """Require that the makespan, or the span of every device, is at most `cost`.

    Constraints on F's and on the last operation of each microbatch at each stage are enough, because a device
    begins with an F and ends with such an operation. The makespan counts from time 0. Where a step takes more
    than its operations, a device also reduces its stages, one at a time, and then runs its optimizer.
    """
    step = instance.barrier
    for op, start in variables.start.items():
        device = instance.device(op.stage, op.microbatch)
        if op.kind is OpKind.F:
            model.add(variables.begin[device] <= start)
        after = 0 if step is None else step.optimizer[device]  # type: ignore[index]
        if ends_stage(instance, op):
            model.add(variables.end[op] + after - variables.begin[device] <= cost)
    if instance.whole:
        for begin in variables.begin:
            model.add(begin == 0)
    if step is not None:
        for device in range(instance.devices):
            _add_reductions(model, instance, variables, device, cost)


def _add_reductions(
    model: cp_model.CpModel,
    instance: Instance,
    variables: Variables,
    device: int,
    cost: cp_model.LinearExprT,
) -> None:
    step = instance.barrier
    assert step is not None
    intervals = []
    for stage in instance.placement.stages_on(device):
        ticks, after = step.reduce[stage], step.optimizer[device]  # type: ignore[index]
        if ticks == 0:
            continue
        begin = model.new_int_var(0, variables.latest, f"reduce{stage}.{device}")
        for op, end in variables.end.items():
            mine = op.stage == stage and instance.device(stage, op.microbatch) == device
            if mine and ends_stage(instance, op):
                model.add(begin >= end)
        model.add(begin + ticks + after <= cost)
        intervals.append(model.new_fixed_size_interval_var(begin, ticks, f"reduction{stage}.{device}"))
    model.add_no_overlap(intervals)
