"""Memory-aware list scheduling under one priority rule, compiled; see `list_schedule` for the method.

A *queue* is a stage of one route; its operations run first in, first out. The *rank* of a microbatch
is its place in one order of all microbatches that every device shares: the routes take turns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Bools, Ints, Records
from tightpipe.kernels.compiled import compiled_with_arrays

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)
_NEVER = 2**62

# records and not one array per column: numba counts references, atomically, at every use of an array
_PER_KIND = (np.int64, (3,))
QUEUE = np.dtype(
    [
        ("home", np.int64),  # its device
        ("stage", np.int64),
        ("route", np.int64),
        ("duration", *_PER_KIND),
        ("delta", *_PER_KIND),
        ("lag", *_PER_KIND),  # from the operation that one waits for, see tightpipe.core.instance_arrays
        ("count", *_PER_KIND),  # operations started
        ("ready", np.int64, (2,)),  # when the next F and B may start, `_NEVER` until that is known
    ]
)
"""A queue: its numbers, times in ticks, and how far a run has come."""
DEVICE = np.dtype(
    [
        ("limit", np.int64),  # 2**62 for none
        ("wake", np.int64),  # when it next decides
        ("first", np.int64),  # start of its first operation, -1 before
        ("end", np.int64),  # end of its last operation
        ("used", np.int64),  # memory
        ("held", np.int64),  # memory without that of pending W's
        ("promised", np.int64),  # what the F's still to come of the admitted microbatches take
        ("oldest", np.int64),  # least rank that lacks a B here
        ("last", np.int64),  # kind of its last operation
        ("placed", np.int64),
    ]
)
"""A device: its numbers and how far a run has come."""


class Rule(NamedTuple):
    """A priority rule; see `list_schedule.RULES` for the ones that are tried."""

    alternate: bool  # after a B prefer an F, after an F a B; otherwise always the B
    deepest_forward: bool  # the deepest of several F's first; otherwise the shallowest
    deepest_backward: bool
    reserve: float  # share of the promised memory that an F must leave free, 0 to 1
    overrun: float  # share of a W that may reach beyond the next arrival: 0 means it fits, 1 any W
    patience: float  # an F waits for a B that arrives within this share of the F's duration


class _State(NamedTuple):
    queues: Records  # (Q,) of QUEUE, the stages of route 0 first
    devices: Records  # (p,) of DEVICE
    local: Ints  # (p, Q / p): the queues of each device, by stage
    arrival: Ints  # (2, Q, n / routes): when an F or B may start, `_NEVER` until its predecessor started
    hold: Ints  # (p, n): by rank, memory held until its B's end
    need: Ints  # (p, n): by rank, memory that the F's still to come take
    todo: Ints  # (p, n): by rank, B's still to start
    admitted: Bools  # (p, n): by rank, whether an F has started
    order: Ints  # (p, 3nQ / (p routes), 3)
    routes: int


@compiled_with_arrays
def run_list(
    queues: Records, devices: Records, local: Ints, microbatches: int, routes: int, rule: Rule
) -> Ints:
    """Schedule everything; `queues` and `devices` are updated.

    Returns
    -------
    array
        The order, shape (p, operations per device, 3).
    """
    state = _new_state(queues, devices, local, microbatches, routes)
    left = state.order.shape[0] * state.order.shape[1]
    while left > 0:
        device = _next_to_decide(devices)
        kind, queue, resume = _decide(state, device, rule)
        if queue < 0:
            devices[device].wake = resume
        else:
            _start(state, kind, queue)
            left -= 1
    return state.order


@compiled_with_arrays
def _new_state(queues: Records, devices: Records, local: Ints, microbatches: int, routes: int) -> _State:
    p, n = len(devices), microbatches
    per_route = n // routes
    arrival = np.full((2, len(queues), per_route), _NEVER, np.int64)
    need, todo = np.zeros((p, n), np.int64), np.zeros((p, n), np.int64)
    for q in range(len(queues)):
        me = queues[q]
        me.ready[_F], me.ready[_B] = 0 if me.stage == 0 else _NEVER, _NEVER
        if me.stage == 0:
            arrival[_F, q] = 0
        for k in range(per_route):
            need[me.home, k * routes + me.route] += me.delta[_F]
            todo[me.home, k * routes + me.route] += 1
    hold = np.zeros((p, n), np.int64)
    order = np.zeros((p, 3 * per_route * len(queues) // p, 3), np.int64)
    admitted = np.zeros((p, n), np.bool_)
    return _State(queues, devices, local, arrival, hold, need, todo, admitted, order, routes)


@compiled_with_arrays
def _next_to_decide(devices: Records) -> int:
    best = 0
    for device in range(1, len(devices)):
        if devices[device].wake < devices[best].wake:
            best = device
    return best


@compiled_with_arrays
def _decide(state: _State, device: int, rule: Rule) -> tuple[int, int, int]:
    """Choose what `device` starts now: kind and queue; queue -1 and when to decide again for nothing."""
    me = state.devices[device]
    backward = _best_backward(state, device, rule)
    forward = _best_forward(state, device, rule)
    if backward >= 0 and not (rule.alternate and me.last == _B and forward >= 0):
        return _B, backward, 0
    pending = _oldest_pending(state, device)
    if forward >= 0:
        wait = rule.patience * state.queues[forward].duration[_F]
        if backward < 0 and _next_arrival(state, device, _B) - me.wake < wait:
            forward = -1
        elif me.used + state.queues[forward].delta[_F] > me.limit:
            return _W, pending, 0  # memory without pending W's suffices, else the F were not safe
    if forward >= 0:
        return _F, forward, 0
    arrival = min(_next_arrival(state, device, _B), _next_arrival(state, device, _F))
    if pending >= 0:
        weight = state.queues[pending].duration[_W]
        if me.wake + weight - arrival <= rule.overrun * weight:
            return _W, pending, 0
    return _W, -1, arrival


@compiled_with_arrays
def _best_backward(state: _State, device: int, rule: Rule) -> int:
    """Return the queue of the ready B that goes first, -1 if none is ready."""
    local, queues, now = state.local[device], state.queues, state.devices[device].wake
    for i in range(len(local)):
        queue = local[len(local) - 1 - i] if rule.deepest_backward else local[i]
        if queues[queue].ready[_B] <= now:
            return int(queue)
    return -1


@compiled_with_arrays
def _best_forward(state: _State, device: int, rule: Rule) -> int:
    """Return the queue of the ready F that goes first among those that may start, -1 if there is none."""
    local, queues, now = state.local[device], state.queues, state.devices[device].wake
    for i in range(len(local)):
        queue = local[len(local) - 1 - i] if rule.deepest_forward else local[i]
        if queues[queue].ready[_F] <= now and _may_start(state, queue, rule):
            return int(queue)
    return -1


@compiled_with_arrays
def _may_start(state: _State, queue: int, rule: Rule) -> bool:
    """Whether the device stays safe with the next F of `queue`, and keeps the rule's reserve."""
    here = state.queues[queue]
    me, needed = state.devices[here.home], here.delta[_F]
    rank = here.count[_F] * state.routes + here.route
    if me.limit >= _NEVER or rank <= me.oldest:
        return True
    promised = me.promised - needed
    if not state.admitted[here.home, rank]:
        promised += state.need[here.home, rank]
    if me.held + needed + rule.reserve * promised > me.limit:
        return False
    free = me.limit - me.held - needed
    hold, need = state.hold[here.home], state.need[here.home]
    for older in range(me.oldest, rank):
        if free < need[older]:
            return False
        free += hold[older]
    return True


@compiled_with_arrays
def _oldest_pending(state: _State, device: int) -> int:
    """Return the queue whose next W belongs to the oldest microbatch, the deepest first; -1 for none."""
    best, least = -1, _NEVER
    local, queues = state.local[device], state.queues
    for i in range(len(local) - 1, -1, -1):
        here = queues[local[i]]
        rank = here.count[_W] * state.routes + here.route
        if here.count[_W] < here.count[_B] and rank < least:
            best, least = local[i], rank
    return int(best)


@compiled_with_arrays
def _next_arrival(state: _State, device: int, kind: int) -> int:
    """Return when the next F or B becomes ready that is not yet, as far as known."""
    best, local, queues = _NEVER, state.local[device], state.queues
    now = state.devices[device].wake
    for i in range(len(local)):
        ready = queues[local[i]].ready[kind]
        if now < ready < best:
            best = ready
    return int(best)


@compiled_with_arrays
def _start(state: _State, kind: int, queue: int) -> None:
    """Start the next operation of `queue` now and tell the device that waits for it."""
    here = state.queues[queue]
    me, k = state.devices[here.home], here.count[kind]
    now = me.wake
    here.count[kind] += 1
    me.end = me.wake = now + here.duration[kind]
    if me.placed == 0:
        me.first = now
    row = state.order[here.home, me.placed]
    row[0], row[1], row[2] = kind, here.stage, here.route * state.arrival.shape[2] + k
    me.placed += 1
    me.used += here.delta[kind]  # at once also for B and W: nothing else starts here before their end
    if kind == _W:
        return
    me.last = kind
    here.ready[kind] = state.arrival[kind, queue, k + 1] if k + 1 < state.arrival.shape[2] else _NEVER
    _account(state, kind, queue, k)
    _announce(state, kind, queue, k, me.end)


@compiled_with_arrays
def _account(state: _State, kind: int, queue: int, k: int) -> None:
    """Book the memory of an F or B, by the rank of its microbatch."""
    here = state.queues[queue]
    me, rank, size = state.devices[here.home], k * state.routes + here.route, here.delta[_F]
    hold, need, todo = state.hold[here.home], state.need[here.home], state.todo[here.home]
    if kind == _F:
        me.promised += -size if state.admitted[here.home, rank] else need[rank] - size
        state.admitted[here.home, rank] = True
        me.held += size
        hold[rank] += size
        need[rank] -= size
        return
    me.held -= size
    hold[rank] -= size
    todo[rank] -= 1
    while me.oldest < len(todo) and todo[me.oldest] == 0:
        me.oldest += 1


@compiled_with_arrays
def _announce(state: _State, kind: int, queue: int, k: int, end: int) -> None:
    """Set when the operation that waits for this one may start, and wake its device for it."""
    stages = len(state.queues) // state.routes
    last = state.queues[queue].stage == stages - 1
    if kind == _B and state.queues[queue].stage == 0:
        return
    following = queue if last and kind == _F else queue + 1 if kind == _F else queue - 1
    then = _B if last and kind == _F else kind
    arrival = end + state.queues[following].lag[then]
    state.arrival[then, following, k] = arrival
    if state.queues[following].count[then] == k:
        state.queues[following].ready[then] = arrival
    other = state.devices[state.queues[following].home]
    other.wake = min(other.wake, max(arrival, other.end))
