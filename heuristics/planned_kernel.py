"""The compiled loop that runs planned sequences of F's and B's at real costs, and decides when W's run.

A *plan* gives each device the sequence of all but its last F's and B's. It was made for simpler costs, e.g.
for equal durations of F, B and W. At real costs two things are decided anew. A W runs where the device would
idle long enough, or where the next F of the plan needs memory. And where its plan ends, a device chooses
among its operations by due dates (`due_date_kernel`), and may wait for one that is due early.
"""

from __future__ import annotations

import numpy as np

from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled_with_arrays

from .due_date_kernel import DueDates, decide, due_date
from .list_state_kernel import (
    NEVER,
    State,
    may_start,
    next_to_decide,
    oldest_pending,
    start_operation,
)

_F, _W = int(OpKind.F), int(OpKind.W)


@compiled_with_arrays
def run_planned(state: State, plan: Ints, due: DueDates, patience: float) -> bool:
    """Run all operations of an instance with one class of microbatches, and return whether they could run.

    A run ends early if memory does not suffice.

    Parameters
    ----------
    state
        The state before any operation has started, which is changed. Its devices run no pairs.
    plan
        Kind and stage of F's and B's of each device in the sequence in which they run, shape (p, rows, 2);
        after the last planned one the kind is -1. Of a kind and stage, microbatches run in sequence.
    due
        The due dates after the plan. By its `overrun` a W may delay each operation of the plan.
    patience
        After the plan, a device waits for an operation that is due before every ready one, if it arrives
        within this share of the ready one's duration.
    """
    devices = state.devices
    done = np.zeros(len(devices), np.int64)
    left = state.joined.size
    while left > 0:
        device = next_to_decide(devices)
        if devices[device].wake >= NEVER:
            return False
        planned = done[device] < plan.shape[1] and plan[device, done[device], 0] >= 0
        if planned and plan[device, done[device], 0] == _W:
            done[device] += 1
            stage = oldest_pending(state, device)
            if stage >= 0:
                left -= start_operation(state, _W, stage)
            continue
        if planned:
            kind, stage, resume = _planned(state, device, plan[device, done[device]], due.overrun)
        else:
            kind, stage, resume = _unplanned(state, device, due, patience)
        if stage >= 0:
            left -= start_operation(state, kind, stage)
            if planned and kind != _W:
                done[device] += 1
        elif resume <= devices[device].wake:
            return False
        else:
            devices[device].wake = resume
    return True


@compiled_with_arrays
def _planned(state: State, device: int, row: Ints, overrun: float) -> tuple[int, int, int]:
    """Return kind and stage of the operation that `device` starts now, where its plan goes on with `row`.

    If it starts none, the stage is -1, and the third number is the tick at which it decides again, or -1 if
    no W is left that could free the memory for the next F.
    """
    me, kind, stage = state.devices[device], row[0], row[1]
    if kind == _F and me.used + state.stages[stage].delta[_F] > me.limit:
        return _W, oldest_pending(state, device), -1
    return _or_weight(state, device, kind, stage, overrun)


@compiled_with_arrays
def _or_weight(state: State, device: int, kind: int, stage: int, overrun: float) -> tuple[int, int, int]:
    """Return the next operation of a kind and stage if it is ready, else a W that delays it little, if any.

    The result is as in `_planned`; the device decides again when the operation is ready.
    """
    me, ready = state.devices[device], state.stages[stage].ready[kind]
    if ready <= me.wake:
        return kind, stage, 0
    pending = oldest_pending(state, device)
    if pending >= 0:
        weight = state.stages[pending].duration[_W]
        if me.wake + weight - ready <= overrun * weight:
            return _W, pending, 0
    return _W, -1, ready


@compiled_with_arrays
def _unplanned(state: State, device: int, due: DueDates, patience: float) -> tuple[int, int, int]:
    """Return what `device` starts by due dates, or what it does until an operation arrives that is due first.

    The result is as in `_planned`.
    """
    kind, stage, resume = decide(state, device, due)
    if kind == _W or stage < 0:
        return kind, stage, resume
    now, stages, local = state.devices[device].wake, state.stages, state.local[device]
    until = now + patience * stages[stage].duration[kind]
    first_kind, first_stage = kind, stage
    earliest = due_date(state, kind, stage, due.last, due.pace)
    for i in range(len(local)):
        for other in range(2):
            if not now < stages[local[i]].ready[other] <= until:
                continue
            if other == _F and not may_start(state, local[i], due.reserve):
                continue
            date = due_date(state, other, local[i], due.last, due.pace)
            if date < earliest:
                first_kind, first_stage, earliest = other, local[i], date
    return _or_weight(state, device, first_kind, int(first_stage), due.overrun)
