"""The operations of an instance, and which of them wait for which."""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind

KINDS = (OpKind.F, OpKind.B, OpKind.W)


def operations_of(instance: Instance) -> list[Operation]:
    """Return every F, B and W of an instance."""
    stages, microbatches = range(instance.stages), range(instance.microbatches)
    return [Operation(k, s, m) for k in KINDS for s in stages if instance.has(k, s) for m in microbatches]


def ends_stage(instance: Instance, op: Operation) -> bool:
    """Return whether an operation is the last one of its microbatch at its stage."""
    later = range(op.kind + 1, OpKind.BW)
    return not any(instance.has(OpKind(kind), op.stage) for kind in later)


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
