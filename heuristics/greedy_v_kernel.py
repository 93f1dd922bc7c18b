"""The compiled loop of one pass of the greedy V-schedule, which decides one operation after another.

On a V of p devices, device d runs the *lower* stage d and the *upper* stage 2p - 1 - d. A pass fixes the
sequence of the 6n operations of each device: a warm-up of F's, then rounds in which every device places at
most one B and one F. From its B on a W is *pending*; pending W's fill idle time, and run when memory is full.
An operation that is not ready or does not fit into memory is skipped in its round, and a round in which no
device can place an operation ends the pass as a failure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints, Records
from tightpipe.kernels.compiled import compiled, compiled_with_arrays
from tightpipe.model.operation import OpKind

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)
_NOT_YET = -1

# Records are faster than one array per column, because numba counts references at every use of an array.
_PER_KIND = (np.int64, (3,))
STAGE = np.dtype(
    [
        ("home", np.int64),  # its device
        ("duration", *_PER_KIND),
        ("delta", *_PER_KIND),
        ("lag", *_PER_KIND),  # communication from the predecessor
        ("count", *_PER_KIND),  # number of operations placed so far; the next one has this microbatch
    ]
)
"""A stage: its costs (times in ticks), and how far the pass has come there."""
DEVICE = np.dtype(
    [
        ("upper", np.int64),  # number of the upper stage; the lower stage has the number of the device
        ("limit", np.int64),
        ("spare", np.int64),  # bubble in ticks up to which idling counts as free, see `Policy`
        ("time", np.int64),  # end of the last operation
        ("memory", np.int64),
        ("bubble", np.int64),  # idle ticks since the first F, plus own work, less the largest work
        ("filled", np.int64),  # number of W's placed so far
        ("placed", np.int64),  # number of operations placed so far
    ]
)
"""A device: its memory limit, and how far the pass has come there."""


class Policy(NamedTuple):
    """Two flags, which say when a device may delay its next operation by a W, instead of idling before it.

    The device may place such a W before an F if `before_forward` is set, and before a B of its upper stage if
    `before_backward` is set. Before a B of its lower stage the device always may.

    The device places the W only if idling would cost time. Idling costs nothing until the device's bubble
    exceeds both the largest bubble of any device so far and ``spare``. The greedy repeats the pass: ``spare``
    is by how many ticks the device's bubble was below the largest one in the pass before, or 0 in the first.
    """

    before_forward: bool
    before_backward: bool  # of the upper stage


class _State(NamedTuple):
    stages: Records  # (2p,) of STAGE
    devices: Records  # (p,) of DEVICE
    end: Ints  # (2, 2p, n): end of each F and B in ticks, `_NOT_YET` while it is not placed
    pending: Ints  # (p, 2n): stages of the B's that the device has placed; the W's run in this sequence
    order: Ints  # (p, 6n, 3)
    worst: Ints  # (1,): largest bubble so far, at least 0
    microbatches: int


@compiled_with_arrays
def run_pass(stages: Records, devices: Records, microbatches: int, policy: Policy) -> tuple[bool, Ints]:
    """Place all operations of an instance, one after another; the records `stages` and `devices` are changed.

    Return whether all operations could be placed, and the order as an array of shape (p, 6n, 3) with kind,
    stage and microbatch of each operation. `policy` says before which a device may place a W that delays
    them.
    """
    p, n = len(devices), microbatches
    state = _State(
        stages,
        devices,
        np.full((2, 2 * p, n), _NOT_YET, np.int64),
        np.zeros((p, 2 * n), np.int64),
        np.zeros((p, 6 * n, 3), np.int64),
        np.zeros(1, np.int64),
        n,
    )
    _warm_up(state)
    _level(state)
    works = _rounds(state, policy)
    if works:
        for device in range(p):
            while _has_pending(state, device):
                _put_weight(state, device)
    return works, state.order


@compiled
def _warm_up(state: _State) -> None:
    """Place the F's of the first microbatch, and more F's while this microbatch goes down the V and up."""
    p = len(state.devices)
    for device in range(p):
        _put(state, _F, device)
    for device in range(p - 1, -1, -1):
        more = device < p - 1
        while more and _has_time_for_more(state, device):
            for other in range(device + 1):
                more = _put(state, _F, other)
        _put(state, _F, state.devices[device].upper)


@compiled
def _has_time_for_more(state: _State, device: int) -> bool:
    """Return whether `device` can run another F of its lower stage before the first microbatch comes back.

    The F must end in time, and the memory must have room for `device` + 1 more F's of each of the two stages.
    """
    me, lower = state.devices[device], state.stages[device]
    upper = state.stages[me.upper]
    in_time = me.time + lower.duration[_F] <= _arrival(state, _F, me.upper)
    fits = me.memory + (lower.delta[_F] + upper.delta[_F]) * (1 + device) <= me.limit
    return bool(in_time and fits and lower.count[_F] < state.microbatches)


@compiled
def _level(state: _State) -> None:
    """Place more F's, so that no device has fewer F's than the device before it.

    A device also gets more F's of its upper stage than the device before it, unless that device has placed
    all of its own. Where no further F is ready and fits into memory, a device may stay behind.
    """
    p = len(state.devices)
    upper_turn = False
    for device in range(1, p):
        turns_without = 0
        while _is_behind(state, device) and turns_without < 2:
            turns_without += 1
            for other in range(p - 1, device - 1, -1):
                if _put(state, _F, state.devices[other].upper if upper_turn else other):
                    turns_without = 0
            upper_turn = not upper_turn


@compiled
def _is_behind(state: _State, device: int) -> bool:
    """Return whether the device lacks F's, in total or of its upper stage, by the rule of `_level`."""
    stages, devices = state.stages, state.devices
    upper = stages[devices[device].upper].count[_F]
    upper_before = stages[devices[device - 1].upper].count[_F]
    fewer = stages[device].count[_F] + upper < stages[device - 1].count[_F] + upper_before
    return bool(fewer or upper <= upper_before < state.microbatches)


@compiled_with_arrays
def _rounds(state: _State, policy: Policy) -> bool:
    """Run rounds with at most one B and one F per device; return whether all B's could be placed."""
    left = len(state.stages) * state.microbatches
    while left > 0:
        backwards = _round_of_backwards(state, policy)
        if backwards + _round_of_forwards(state, policy) == 0:
            return False
        left -= backwards
    return True


@compiled_with_arrays
def _round_of_backwards(state: _State, policy: Policy) -> int:
    """Place a B on each device where one is ready, and return how many were placed.

    All devices first choose their stage. The B's then follow their dependences: those of lower stages from
    the last device down, those of upper stages from device 0 up.
    """
    p = len(state.devices)
    lower_turn = np.zeros(p, np.bool_)
    for device in range(p):
        lower_turn[device] = _is_lower_turn(state, device)
    placed = 0
    for device in range(p - 1, -1, -1):
        if lower_turn[device] and _arrival(state, _B, device) != _NOT_YET:
            _fill(state, _B, device, True)
            placed += _put(state, _B, device)
    for device in range(p):
        upper = state.devices[device].upper
        if not lower_turn[device] and _arrival(state, _B, upper) != _NOT_YET:
            _fill(state, _B, upper, policy.before_backward)
            placed += _put(state, _B, upper)
    return placed


@compiled
def _is_lower_turn(state: _State, device: int) -> bool:
    uppers = state.stages[state.devices[device].upper].count[_B]
    if state.stages[device].count[_B] >= uppers:
        return False
    return bool(uppers >= state.microbatches or _arrival(state, _B, device) != _NOT_YET)


@compiled
def _round_of_forwards(state: _State, policy: Policy) -> int:
    placed = 0
    for device in range(len(state.devices)):
        stage = _next_forward(state, device)
        if stage < 0:
            continue
        while not _has_room(state, stage) and _has_pending(state, device):
            _put_weight(state, device)
        if _has_room(state, stage):
            _fill(state, _F, stage, policy.before_forward)
            placed += _put(state, _F, stage)
    return placed


@compiled
def _next_forward(state: _State, device: int) -> int:
    """Return the stage of the next F on `device`: the upper one if ready, else the lower one; -1 for none."""
    upper = state.devices[device].upper
    lowers, uppers = state.stages[device].count[_F], state.stages[upper].count[_F]
    if uppers >= state.microbatches:
        return -1
    if uppers < lowers and _arrival(state, _F, upper) != _NOT_YET:
        return int(upper)
    if lowers < state.microbatches and _arrival(state, _F, device) != _NOT_YET:
        return device
    return -1


@compiled
def _fill(state: _State, kind: int, stage: int, may_delay: bool) -> None:
    """Place the pending W's that end by the tick at which the next `kind` of `stage` can start.

    With `may_delay`, one more W is placed if idling instead would cost time (`Policy`).
    """
    device = state.stages[stage].home
    me = state.devices[device]
    arrival = _arrival(state, kind, stage)
    while _has_pending(state, device):
        weight = state.stages[state.pending[device, me.filled]].duration[_W]
        if arrival < me.time + weight:
            break
        _put_weight(state, device)
    if may_delay and _has_pending(state, device):
        lost_anyway = max(state.worst[0], me.spare)
        if arrival - me.time > lost_anyway - me.bubble:
            _put_weight(state, device)


@compiled
def _arrival(state: _State, kind: int, stage: int) -> int:
    """Return when the input of the next F or B of `stage` arrives, in ticks; `_NOT_YET` if that is open."""
    me, last = state.stages[stage], len(state.stages) - 1
    m = me.count[kind]
    if kind == _F:
        before = 0 if stage == 0 else state.end[_F, stage - 1, m]
    elif stage == last:
        before = state.end[_F, last, m]
    else:
        before = state.end[_B, stage + 1, m]
    return int(before if before == _NOT_YET else before + me.lag[kind])


@compiled
def _has_room(state: _State, stage: int) -> bool:
    """Return whether one more F of `stage` fits into the memory of its device."""
    here = state.stages[stage]
    me = state.devices[here.home]
    return bool(me.memory + here.delta[_F] <= me.limit)


@compiled
def _has_pending(state: _State, device: int) -> bool:
    me = state.devices[device]
    return bool(me.filled < state.stages[device].count[_B] + state.stages[me.upper].count[_B])


@compiled
def _put_weight(state: _State, device: int) -> None:
    """Place the oldest pending W; it can start at once because its B has ended."""
    me = state.devices[device]
    stage = state.pending[device, me.filled]
    me.filled += 1
    _append(state, _W, stage, me.time)


@compiled
def _put(state: _State, kind: int, stage: int) -> bool:
    """Place the next F or B of `stage` if it exists, is ready and fits; return whether it was placed."""
    here = state.stages[stage]
    me, m = state.devices[here.home], here.count[kind]
    if m >= state.microbatches:
        return False
    arrival = _arrival(state, kind, stage)
    if arrival == _NOT_YET or (kind == _F and not _has_room(state, stage)):
        return False
    if kind == _B:
        before = state.stages[here.home].count[_B] + state.stages[me.upper].count[_B]
        state.pending[here.home, before] = stage
    _append(state, kind, stage, max(me.time, arrival))
    state.end[kind, stage, m] = me.time
    return True


@compiled
def _append(state: _State, kind: int, stage: int, start: int) -> None:
    here = state.stages[stage]
    me = state.devices[here.home]
    if me.placed > 0:
        me.bubble += start - me.time
        state.worst[0] = max(state.worst[0], me.bubble)
    me.time = start + here.duration[kind]
    me.memory += here.delta[kind]
    row = state.order[here.home, me.placed]
    row[0], row[1], row[2] = kind, stage, here.count[kind]
    me.placed += 1
    here.count[kind] += 1
