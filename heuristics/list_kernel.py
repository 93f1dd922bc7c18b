"""The compiled loops of list scheduling: by memory and priority, and by due dates."""

from __future__ import annotations

from typing import NamedTuple

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled
from tightpipe.model.operation import OpKind

from .list_state_kernel import (
    NEVER,
    State,
    may_start,
    next_arrival,
    next_to_decide,
    oldest_pending,
    start_operation,
)

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)


class Rule(NamedTuple):
    """A priority rule, by which a free device chooses the operation to start (`list_schedule.rules_of`)."""

    alternate: bool  # prefer an F after a B and a B after an F; otherwise always prefer the B
    deepest_forward: bool  # of several ready F's take the F of the last stage; otherwise of the first
    deepest_backward: bool  # of several ready B's take the B of the last stage; otherwise of the first
    reserve: float  # share of the promised memory that an F must leave free, 0 to 1
    overrun: float  # share of a W that may run beyond the next arrival: at 0 the W must fit, at 1 any may run
    patience: float  # an F waits if a B will arrive within this share of the F's duration


@compiled
def run_list(state: State, rule: Rule, most: int) -> None:
    """Run the next `most` operations, which must be left, by a rule; the last pair may be beyond them."""
    left = most
    while left > 0:
        device = next_to_decide(state.devices)
        kind, stage, resume = _decide(state, device, rule)
        if stage < 0:
            state.devices[device].wake = resume
        else:
            left -= start_operation(state, kind, stage)


@compiled
def _decide(state: State, device: int, rule: Rule) -> tuple[int, int, int]:
    """Return what `device` starts now by a priority rule, in the form of `decide`."""
    me = state.devices[device]
    backward = _best(state, device, _B, rule.deepest_backward, rule.reserve)
    forward = _best(state, device, _F, rule.deepest_forward, rule.reserve)
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


@compiled
def _best(state: State, device: int, kind: int, deepest: bool, reserve: float) -> int:
    """Return the stage of the F or B (`kind`) that comes first among those that may start, -1 if none may."""
    local, stages, now = state.local[device], state.stages, state.devices[device].wake
    for i in range(len(local)):
        stage = local[len(local) - 1 - i] if deepest else local[i]
        if stages[stage].ready[kind] <= now and (kind == _B or may_start(state, stage, reserve)):
            return int(stage)
    return -1


class DueDates(NamedTuple):
    """Due dates of F's and B's, and two shares that decide which W's and F's a device may start.

    A due date is the tick by which an operation should start. An operation that no other one of its kind and
    stage follows has its due date in `last`; S is the number of stages of all routes. Any other one is due
    earlier, by what `pace` says for its microbatch when a device compares operations, and by what `closing`
    says when a device decides whether a W may delay F's and B's.
    """

    last: Ints  # (classes, 2, S): when an F and a B of each class should start if it is the last, in ticks
    pace: Ints  # (routes, n / routes): how much earlier it is due, by the place of its microbatch
    closing: Ints  # (routes, n / routes)
    overrun: float  # share of a W, 0 to 1, by which it may always delay the next arrival
    reserve: float  # share of the promised memory, 0 to 1, that an F must leave free


@compiled
def run_by_due_dates(state: State, due: DueDates, most: int) -> None:
    """Run the next `most` operations, which must be left, by due dates; the last pair may be beyond them."""
    left = most
    while left > 0:
        device = next_to_decide(state.devices)
        kind, stage, resume = decide(state, device, due)
        if stage < 0:
            state.devices[device].wake = resume
        else:
            left -= start_operation(state, kind, stage)


@compiled
def decide(state: State, device: int, due: DueDates) -> tuple[int, int, int]:
    """Return kind and stage of the operation that `device` starts now.

    If it starts none, the stage is -1, and the third number is the tick at which it decides again.
    """
    me = state.devices[device]
    kind, stage = most_urgent(state, device, due)
    pending = oldest_pending(state, device)
    if kind == _F and me.used + state.stages[stage].delta[_F] > me.limit:
        return _W, pending, 0  # a safe F fits once all pending W's have run, so one is pending
    if stage >= 0:
        return kind, stage, 0
    arrival = min(next_arrival(state, device, _B), next_arrival(state, device, _F))
    if pending >= 0 and may_delay(state, device, pending, arrival, due):
        return _W, pending, 0
    return _W, -1, arrival


@compiled
def most_urgent(state: State, device: int, due: DueDates) -> tuple[int, int]:
    """Return kind and stage of the B, or F that `may_start` allows, that is due first; stage -1 if none."""
    best_kind, best_stage, earliest = _B, -1, NEVER
    local, stages, now = state.local[device], state.stages, state.devices[device].wake
    for i in range(len(local)):
        here = stages[local[i]]
        for kind in range(2):
            if here.ready[kind] > now or (kind == _F and not may_start(state, local[i], due.reserve)):
                continue
            date = due_date(state, kind, local[i], due.last, due.pace)
            if date < earliest:
                best_kind, best_stage, earliest = kind, local[i], date
    return best_kind, int(best_stage)


@compiled
def due_date(state: State, kind: int, stage: int, last: Ints, pace: Ints) -> int:
    """Return when the next operation of a kind at a stage should start, in ticks."""
    route, k = state.stages[stage].route, state.stages[stage].count[kind]
    return int(last[state.mb_class[route, k], kind, stage] - pace[route, k])


@compiled
def may_delay(state: State, device: int, pending: int, arrival: int, due: DueDates) -> bool:
    """Return whether a device may start the W of stage `pending` now, even if that W ends after `arrival`.

    At the tick `arrival` the next F or B becomes ready. The W may end later than `arrival` by the share
    `due.overrun` of its own duration. The W may also end later by the least time from ready to due among the
    F's and B's that become ready before the W ends. All of these can then still start when they are due.
    """
    weight = state.stages[pending].duration[_W]
    now, local = state.devices[device].wake, state.local[device]
    allowed = NEVER
    for i in range(len(local)):
        here = state.stages[local[i]]
        for kind in range(2):
            if now < here.ready[kind] < now + weight:
                allowed = min(
                    allowed, due_date(state, kind, local[i], due.last, due.closing) - here.ready[kind]
                )
    return bool(now + weight - arrival <= max(allowed, due.overrun * weight))
