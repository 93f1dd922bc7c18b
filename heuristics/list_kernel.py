"""The compiled loop of memory-aware list scheduling (`list_schedule`) under one priority rule."""

from __future__ import annotations

from typing import NamedTuple

from tightpipe.core.operation import OpKind
from tightpipe.kernels.compiled import compiled_with_arrays

from .list_state_kernel import (
    State,
    may_start,
    next_arrival,
    next_to_decide,
    oldest_pending,
    start_operation,
)

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)


class Rule(NamedTuple):
    """A priority rule, by which a free device chooses the operation to start, as in `list_schedule.RULES`."""

    alternate: bool  # prefer an F after a B and a B after an F; otherwise always prefer the B
    deepest_forward: bool  # of several ready F's take the F of the last stage; otherwise of the first
    deepest_backward: bool  # of several ready B's take the B of the last stage; otherwise of the first
    reserve: float  # share of the promised memory that an F must leave free, 0 to 1
    overrun: float  # share of a W that may run beyond the next arrival: at 0 the W must fit, at 1 any may run
    patience: float  # an F waits if a B will arrive within this share of the F's duration


@compiled_with_arrays
def run_list(state: State, rule: Rule, most: int) -> None:
    """Run the next operations under one rule; there must be `most` left. The last pair may be beyond them.

    Parameters
    ----------
    state
        The state of the run, which is changed.
    most
        The most operations to run; the run then goes on at the next call.
    rule
        The priority rule.
    """
    left = most
    while left > 0:
        device = next_to_decide(state.devices)
        kind, stage, resume = _decide(state, device, rule)
        if stage < 0:
            state.devices[device].wake = resume
        else:
            left -= start_operation(state, kind, stage)


@compiled_with_arrays
def _decide(state: State, device: int, rule: Rule) -> tuple[int, int, int]:
    """Return kind and stage of the operation that `device` starts now.

    If it starts none, the stage is -1, and the third number is the tick at which it decides again.
    """
    me = state.devices[device]
    backward = _best_backward(state, device, rule)
    forward = _best_forward(state, device, rule)
    if backward >= 0 and not (rule.alternate and me.last == _B and forward >= 0):
        return _B, backward, 0
    pending = oldest_pending(state, device)
    if forward >= 0:
        wait = rule.patience * state.stages[forward].duration[_F]
        if backward < 0 and next_arrival(state, device, _B) - me.wake < wait:
            forward = -1
        elif me.used + state.stages[forward].delta[_F] > me.limit:
            return _W, pending, 0  # a safe F fits once all pending W's have run, so one is pending
    if forward >= 0:
        return _F, forward, 0
    arrival = min(next_arrival(state, device, _B), next_arrival(state, device, _F))
    if pending >= 0:
        weight = state.stages[pending].duration[_W]
        if me.wake + weight - arrival <= rule.overrun * weight:
            return _W, pending, 0
    return _W, -1, arrival


@compiled_with_arrays
def _best_backward(state: State, device: int, rule: Rule) -> int:
    """Return the stage of the ready B that the rule puts first, -1 if no B is ready."""
    local, stages, now = state.local[device], state.stages, state.devices[device].wake
    for i in range(len(local)):
        stage = local[len(local) - 1 - i] if rule.deepest_backward else local[i]
        if stages[stage].ready[_B] <= now:
            return int(stage)
    return -1


@compiled_with_arrays
def _best_forward(state: State, device: int, rule: Rule) -> int:
    """Return the stage of the F that the rule puts first among those that may start, -1 if none may."""
    local, stages, now = state.local[device], state.stages, state.devices[device].wake
    for i in range(len(local)):
        stage = local[len(local) - 1 - i] if rule.deepest_forward else local[i]
        if stages[stage].ready[_F] <= now and may_start(state, stage, rule.reserve):
            return int(stage)
    return -1
