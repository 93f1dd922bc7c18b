"""The state of a run of list scheduling, and the compiled functions that read and change it.

The loops of `list_kernel` choose operations by different rules; what a choice changes is the same.
Here a *stage* belongs to one route, so a placement with two routes has twice as many stages as the model; S
is the number of all these stages. All devices share one sequence of the microbatches of each route, and at
each stage the operations of a kind run in this sequence. The *rank* of a microbatch is its place, from 0, in
one sequence of all microbatches, in which the routes take turns. A *pending* W is one that has yet to run,
but whose B has run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Bools, Ints, Records
from tightpipe.kernels.compiled import compiled, compiled_with_arrays
from tightpipe.model.operation import FUSED, PAIRED, SINGLE, OpKind

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)
NEVER = 2**62

# Records are faster than one array per column, because numba counts references at every use of an array.
_PER_KIND = (np.int64, (3,))
_COSTS = [
    ("duration", *_PER_KIND),
    ("delta", *_PER_KIND),
    ("fused", np.int64),  # ticks of a B with its W
    ("apart", np.int64),  # ticks of a B and its W one after the other
]
COST = np.dtype(_COSTS)
"""What the operations of a microbatch cost at a stage."""
STAGE = np.dtype(
    [
        ("home", np.int64),  # its device
        ("number", np.int64),  # number of the stage in the model
        ("route", np.int64),
        ("place", np.int64),  # its place among the stages of its device
        *_COSTS,  # of the next F, of the next B, of the next pending W
        ("lag", *_PER_KIND),  # communication from the predecessor
        ("count", *_PER_KIND),  # number of operations started; of W's, of those that run alone
        ("split", np.int64),  # number of B's started that run without their W
        ("ready", np.int64, (2,)),  # when the next F and B may start, `NEVER` until that is known
    ]
)
"""A stage of a route: what its next operations cost (times in ticks), and how far the run has come there."""
DEVICE = np.dtype(
    [
        ("limit", np.int64),  # `NO_LIMIT` if the device has none
        ("wake", np.int64),  # when the device next decides what to start
        ("first", np.int64),  # start of its first operation, 0 before
        ("end", np.int64),  # end of its last operation
        ("used", np.int64),  # memory in use
        ("held", np.int64),  # memory in use without that of pending W's
        ("promised", np.int64),  # memory that admitted microbatches will take by F's that have yet to start
        ("oldest", np.int64),  # least rank of a microbatch with a B that has yet to start on the device
        ("last", np.int64),  # kind of its last F or B
        ("paired", np.int64),  # 1 if its pairs of an F and a BW have times of their own, else 0
        ("placed", np.int64),  # number of operations started
    ]
)
"""A device: its memory limit, and how far the run has come there."""


class Fusing(NamedTuple):
    """When a backward is fused, where that takes less time than its B and its W one after the other.

    A fused backward hands its result on later than a B. It is fused if the next device could start the next B
    of the microbatch later than after a B by at most the share `delay` of that difference. At 0 nobody waits,
    at 1 everything is fused that saves time, and above 1 everything. The next device is busy until its
    present operation ends and, for the share `backlog`, with the F's and B's that are ready there.
    """

    delay: float
    backlog: float


class State(NamedTuple):
    """All that a run of list scheduling knows and changes, for S stages, p devices and n microbatches."""

    stages: Records  # (S,) of STAGE, the stages of route 0 first
    devices: Records  # (p,) of DEVICE
    local: Ints  # (p, S / p): the stages of each device, in ascending order
    together: Ints  # (p, S / p, S / p): ticks of a pair, by the places of the stages of its F and its BW
    costs: Records  # (classes, stages of a route) of COST
    mb_class: Ints  # (routes, n / routes): class of each microbatch of a route, in the sequence
    microbatch: Ints  # (routes, n / routes): its number
    arrival: Ints  # (2, S, n / routes): when an F or B may start, `NEVER` until its predecessor has started
    hold: Ints  # (p, n): for each rank, the memory that the microbatch holds until its B's end
    need: Ints  # (p, n): for each rank, the memory that its F's which have yet to start will take
    todo: Ints  # (p, n): for each rank, the number of its B's that have yet to start
    admitted: Bools  # (p, n): for each rank, whether one of its F's has started
    waiting: Ints  # (S, n / routes): microbatches, in their route, of the B's that run without their W
    order: Ints  # (p, 3nS / (p routes), 3)
    joined: (
        Ints  # (p, 3nS / (p routes)): how each operation runs with the next one, as in `Order.from_tokens`
    )
    routes: int
    fusing: Fusing


@compiled_with_arrays
def new_state(
    stages: Records,
    devices: Records,
    local: Ints,
    together: Ints,
    costs: Records,
    mb_class: Ints,
    microbatch: Ints,
    fusing: Fusing,
) -> State:
    """Return the state, made of the arguments, in which nothing has started; first F's may start at 0."""
    p, (routes, per_route) = len(devices), mb_class.shape
    n = routes * per_route
    arrival = np.full((2, len(stages), per_route), NEVER, np.int64)
    need, todo = np.zeros((p, n), np.int64), np.zeros((p, n), np.int64)
    for s in range(len(stages)):
        me = stages[s]
        me.ready[_F], me.ready[_B] = 0 if me.number == 0 else NEVER, NEVER
        if me.number == 0:
            arrival[_F, s] = 0
        for k in range(per_route):
            size = costs[mb_class[me.route, k], me.number].delta[_F]
            need[me.home, k * routes + me.route] += size
            todo[me.home, k * routes + me.route] += 1
    hold = np.zeros((p, n), np.int64)
    order = np.zeros((p, 3 * per_route * len(stages) // p, 3), np.int64)
    admitted = np.zeros((p, n), np.bool_)
    joined = np.zeros(order.shape[:2], np.int64)
    waiting = np.zeros((len(stages), per_route), np.int64)
    own = stages, devices, local, together, costs, mb_class, microbatch
    state = State(*own, arrival, hold, need, todo, admitted, waiting, order, joined, routes, fusing)
    for s in range(len(stages)):
        _show_next(state, _F, s)
        _show_next(state, _B, s)
    return state


@compiled
def _show_next(state: State, kind: int, stage: int) -> None:
    """Set what the next F, the next B or the next pending W of a stage costs, if there is one."""
    here = state.stages[stage]
    k = here.count[kind]
    if kind == _W:
        if k == here.split:
            return
        k = state.waiting[stage, k]
    if k == state.mb_class.shape[1]:
        return
    cost = state.costs[state.mb_class[here.route, k], here.number]
    here.duration[kind], here.delta[kind] = cost.duration[kind], cost.delta[kind]
    if kind == _B:
        here.fused, here.apart = cost.fused, cost.apart


@compiled
def next_to_decide(devices: Records) -> int:
    """Return the device that decides next what to start: the first of those that wake first."""
    best = 0
    for device in range(1, len(devices)):
        if devices[device].wake < devices[best].wake:
            best = device
    return best


@compiled
def may_start(state: State, stage: int, reserve: float) -> bool:
    """Return whether the next F of `stage` may start: its device then stays safe and keeps a reserve free.

    The docstring of the module `list_schedule` defines when a device is safe. `reserve` is the share, 0 to 1,
    of the promised memory that has to stay free. Memory is promised to the F's that have yet to start on the
    device, of microbatches that have begun there. An F of the oldest unfinished microbatch may always start,
    and so may every F on a device without a limit.
    """
    here = state.stages[stage]
    me, needed = state.devices[here.home], here.delta[_F]
    rank = here.count[_F] * state.routes + here.route
    if me.limit >= NEVER or rank <= me.oldest:
        return True
    promised = me.promised - needed
    if not state.admitted[here.home, rank]:
        promised += state.need[here.home, rank]
    if me.held + needed + reserve * promised > me.limit:
        return False
    free = me.limit - me.held - needed
    hold, need = state.hold[here.home], state.need[here.home]
    for older in range(me.oldest, rank):
        if free < need[older]:
            return False
        free += hold[older]
    return True


@compiled
def oldest_pending(state: State, device: int) -> int:
    """Return the stage of the pending W of least rank, the last stage if several; -1 if no W is pending."""
    best, least = -1, NEVER
    local, stages = state.local[device], state.stages
    for i in range(len(local) - 1, -1, -1):
        here = stages[local[i]]
        if here.count[_W] < here.split:
            rank = state.waiting[local[i], here.count[_W]] * state.routes + here.route
            if rank < least:
                best, least = local[i], rank
    return int(best)


@compiled
def next_arrival(state: State, device: int, kind: int) -> int:
    """Return the tick at which the next F or B (`kind`) becomes ready; `NEVER` if none is known."""
    best, local, stages = NEVER, state.local[device], state.stages
    now = state.devices[device].wake
    for i in range(len(local)):
        ready = stages[local[i]].ready[kind]
        if now < ready < best:
            best = ready
    return int(best)


@compiled
def start_operation(state: State, kind: int, stage: int) -> int:
    """Start the next operation of `kind` at `stage` now, and return how many operations that starts.

    Where pairs save time, an F takes the B with it that is ready and saves most, and a B such an F, and the W
    of that B runs with both. Any other B takes its W with it where `_fuses` says so.
    """
    here = state.stages[stage]
    me = state.devices[here.home]
    if me.paired and kind != _W:
        partner = _partner(state, kind, stage)
        if partner >= 0:
            forward, backward = (stage, partner) if kind == _F else (partner, stage)
            places = state.stages[forward].place, state.stages[backward].place
            end = me.wake + state.together[here.home, places[0], places[1]]
            state.joined[here.home, me.placed] = PAIRED
            _start(state, _F, forward, end)
            _start_fused(state, backward, end)
            return 3
    if kind == _B and _fuses(state, stage):
        _start_fused(state, stage, me.wake + here.fused)
        return 2
    if kind == _B:
        state.waiting[stage, here.split] = here.count[_B]
        here.split += 1
        _show_next(state, _W, stage)
    _start(state, kind, stage, me.wake + here.duration[kind])
    return 1


@compiled
def _fuses(state: State, stage: int) -> bool:
    """Return whether the next B of a stage, which starts now, is fused with its W, as `Fusing` says.

    Nobody waits for the B of stage 0. Between this stage and one on another device there may be stages of
    this device, whose B's follow.
    """
    here, fusing = state.stages[stage], state.fusing
    if here.fused >= here.apart:
        return fusing.delay > 1.0
    soon = state.devices[here.home].wake + here.duration[_B]
    for before in range(stage - 1, stage - 1 - here.number, -1):
        there = state.stages[before]
        soon += there.lag[_B]
        if there.home != here.home:
            late = soon + here.fused - here.duration[_B]
            free = state.devices[there.home].end + fusing.backlog * _backlog(state, there.home)
            return bool(max(late, free) - max(soon, free) <= fusing.delay * (late - soon))
        soon += there.duration[_B]
    return True


@compiled
def _backlog(state: State, device: int) -> int:
    """Return the ticks of the F's and B's that are ready on a device, one of each stage and kind."""
    ticks, local, now = 0, state.local[device], state.devices[device].end
    for i in range(len(local)):
        here = state.stages[local[i]]
        if here.ready[_B] <= now:
            ticks += here.duration[_B]
        if here.ready[_F] <= now and may_start(state, local[i], 0.0):
            ticks += here.duration[_F]
    return int(ticks)


@compiled
def _start_fused(state: State, stage: int, end: int) -> None:
    """Start the next B of a stage with its W as one operation, until `end`."""
    me = state.devices[state.stages[stage].home]
    state.joined[state.stages[stage].home, me.placed] = FUSED
    _start(state, _B, stage, end)
    _start(state, _W, stage, end)


@compiled
def _partner(state: State, kind: int, stage: int) -> int:
    """Return the deepest stage whose next B or F may start and saves most in a pair with `stage`'s, or -1."""
    here, best, most = state.stages[stage], -1, 0
    me, local = state.devices[here.home], state.local[here.home]
    for i in range(len(local) - 1, -1, -1):
        there = state.stages[local[i]]
        if there.ready[1 - kind] > me.wake:
            continue
        if kind == _F:
            forward, backward = here, there
        else:
            forward, backward = there, here
            if me.used + there.delta[_F] > me.limit or not may_start(state, local[i], 0.0):
                continue
        apart = forward.duration[_F] + min(backward.fused, backward.apart)
        saves = apart - state.together[here.home, forward.place, backward.place]
        if saves > most:
            best, most = local[i], saves
    return int(best)


@compiled
def _start(state: State, kind: int, stage: int, end: int) -> None:
    """Start the next operation of `kind` at `stage` now, until `end`, and say when its result arrives.

    A W right behind a B with which it is fused is the W of that B; any other one is that of the first B
    whose W waits.
    """
    here = state.stages[stage]
    me, k = state.devices[here.home], here.count[kind]
    fused = kind == _W and me.placed > 0 and state.joined[here.home, me.placed - 1] == FUSED
    if fused:
        k = here.count[_B] - 1
    else:
        here.count[kind] += 1
    if kind == _W and not fused:
        k = state.waiting[stage, k]
    if me.placed == 0:
        me.first = me.wake
    row = state.order[here.home, me.placed]
    row[0], row[1], row[2] = kind, here.number, state.microbatch[here.route, k]
    cost = state.costs[state.mb_class[here.route, k], here.number]
    if not fused:
        _show_next(state, kind, stage)
    me.used += cost.delta[kind]  # B and W free memory at their end, but nothing else starts here before
    me.end = end
    if state.joined[here.home, me.placed] == SINGLE:  # else the next part starts now, too
        me.wake = end
    me.placed += 1
    if kind == _W:
        return
    me.last = kind
    here.ready[kind] = state.arrival[kind, stage, k + 1] if k + 1 < state.arrival.shape[2] else NEVER
    _account(state, kind, stage, k)
    _announce(state, kind, stage, k, end)


@compiled
def _account(state: State, kind: int, stage: int, k: int) -> None:
    """Update, for an F or B that starts, the memory that its device and microbatch hold and still need."""
    here = state.stages[stage]
    me, rank = state.devices[here.home], k * state.routes + here.route
    size = state.costs[state.mb_class[here.route, k], here.number].delta[_F]
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


@compiled
def _announce(state: State, kind: int, stage: int, k: int, end: int) -> None:
    """Set when the operation that waits for F or B number `k` of `stage` may start, and wake its device.

    `end` is the tick at which F or B number `k` ends. The device wakes when the waiting operation may start,
    or when the device is free, if that is later.
    """
    last = state.stages[stage].number == len(state.stages) // state.routes - 1
    if kind == _B and state.stages[stage].number == 0:
        return
    following = stage if last and kind == _F else stage + 1 if kind == _F else stage - 1
    then = _B if last and kind == _F else kind
    arrival = end + state.stages[following].lag[then]
    state.arrival[then, following, k] = arrival
    if state.stages[following].count[then] == k:
        state.stages[following].ready[then] = arrival
    other = state.devices[state.stages[following].home]
    other.wake = min(other.wake, max(arrival, other.end))
