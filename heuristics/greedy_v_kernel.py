"""One pass of the greedy V-schedule, compiled: decide operation after operation, device by device.

On a V of p devices, device d runs the *lower* stage d and the *upper* stage 2p - 1 - d. A pass fixes
for each device a sequence of its 6n operations: a warm-up of F's, then rounds in which every device
places one B and at most one F. The W's wait in a queue; they fill idle time, and run where memory is
full. An operation that is not ready, or does not fit, is skipped; a round without any ends the pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints, Records
from tightpipe.kernels.compiled import compiled_with_arrays

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)
_NOT_YET = -1

# records and not one array per column: numba counts references, atomically, at every use of an array
_PER_KIND = (np.int64, (3,))
STAGE = np.dtype(
    [
        ("home", np.int64),  # its device
        ("duration", *_PER_KIND),
        ("delta", *_PER_KIND),
        ("lag", *_PER_KIND),  # from the operation that one waits for, see tightpipe.core.instance_arrays
        ("count", *_PER_KIND),  # operations placed so far; the next one's microbatch
    ]
)
"""A stage: its numbers, times in ticks, and how far a pass has come."""
DEVICE = np.dtype(
    [
        ("upper", np.int64),  # the upper stage; the lower has the device's number
        ("limit", np.int64),
        ("spare", np.int64),  # idle time that does not count, see `Policy`
        ("time", np.int64),  # end of the last operation
        ("memory", np.int64),
        ("bubble", np.int64),  # idle time since the first F, less what the device may idle at no cost
        ("filled", np.int64),  # W's placed so far
        ("placed", np.int64),  # operations placed so far
    ]
)
"""A device: its numbers and how far a pass has come."""


class Policy(NamedTuple):
    """Where a device may place a W that delays the next operation, so as not to idle.

    It does so before the B's of its lower stage, and where these flags say; but not while its bubble
    stays within what is lost anyway: the largest bubble so far, or ``spare`` of the device, what an
    earlier pass left between it and the worst device.
    """

    before_forward: bool
    before_backward: bool  # of the upper stage


class _State(NamedTuple):
    stages: Records  # (2p,) of STAGE
    devices: Records  # (p,) of DEVICE
    end: Ints  # (2, 2p, n): end of each F and B, `_NOT_YET` while not placed
    pending: Ints  # (p, 2n): stages of the device's B's so far, for their W's
    order: Ints  # (p, 6n, 3)
    worst: Ints  # (1,): largest bubble so far, at least 0
    microbatches: int


@compiled_with_arrays
def run_pass(stages: Records, devices: Records, microbatches: int, policy: Policy) -> tuple[bool, Ints]:
    """Place all operations; `stages` and `devices` are updated.

    Returns
    -------
    tuple
        Whether it worked, and the order as an array of shape (p, 6n, 3).
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


@compiled_with_arrays
def _warm_up(state: _State) -> None:
    """Send the first microbatch down and back up; meanwhile start more F's, as many as memory holds."""
    p = len(state.devices)
    for device in range(p):
        _put(state, _F, device)
    for device in range(p - 1, -1, -1):
        more = device < p - 1
        while more and _has_time_for_more(state, device):
            for other in range(device + 1):
                more = _put(state, _F, other)
        _put(state, _F, state.devices[device].upper)


@compiled_with_arrays
def _has_time_for_more(state: _State, device: int) -> bool:
    """Whether `device` can run another lower F before the first microbatch is back, and keep room for it."""
    me, lower = state.devices[device], state.stages[device]
    upper = state.stages[me.upper]
    in_time = me.time + lower.duration[_F] <= _arrival(state, _F, me.upper)
    fits = me.memory + (lower.delta[_F] + upper.delta[_F]) * (1 + device) <= me.limit
    return bool(in_time and fits and lower.count[_F] < state.microbatches)


@compiled_with_arrays
def _level(state: _State) -> None:
    """Give each device as many F's as the one before it, and one more upper F, down the V."""
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


@compiled_with_arrays
def _is_behind(state: _State, device: int) -> bool:
    """Whether `device` lacks F's, in total or upper ones, against the one before it."""
    stages, devices = state.stages, state.devices
    upper = stages[devices[device].upper].count[_F]
    upper_before = stages[devices[device - 1].upper].count[_F]
    fewer = stages[device].count[_F] + upper < stages[device - 1].count[_F] + upper_before
    return bool(fewer or upper <= upper_before < state.microbatches)


@compiled_with_arrays
def _rounds(state: _State, policy: Policy) -> bool:
    """Place one B on every device, then an F where one is ready, until nothing more can be placed."""
    left = len(state.stages) * state.microbatches
    while left > 0:
        backwards = _round_of_backwards(state, policy)
        if backwards + _round_of_forwards(state, policy) == 0:
            return False
        left -= backwards
    return True


@compiled_with_arrays
def _round_of_backwards(state: _State, policy: Policy) -> int:
    """Choose lower or upper B for all devices first; then place them along their chains."""
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


@compiled_with_arrays
def _is_lower_turn(state: _State, device: int) -> bool:
    uppers = state.stages[state.devices[device].upper].count[_B]
    if state.stages[device].count[_B] >= uppers:
        return False
    return bool(uppers >= state.microbatches or _arrival(state, _B, device) != _NOT_YET)


@compiled_with_arrays
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


@compiled_with_arrays
def _next_forward(state: _State, device: int) -> int:
    """Return the stage of the F to place on `device`, the upper one if it is ready; -1 for none."""
    upper = state.devices[device].upper
    lowers, uppers = state.stages[device].count[_F], state.stages[upper].count[_F]
    if uppers >= state.microbatches:
        return -1
    if uppers < lowers and _arrival(state, _F, upper) != _NOT_YET:
        return int(upper)
    if lowers < state.microbatches and _arrival(state, _F, device) != _NOT_YET:
        return device
    return -1


@compiled_with_arrays
def _fill(state: _State, kind: int, stage: int, may_delay: bool) -> None:
    """Place W's before an operation while they fit; with `may_delay` one more where idling would hurt."""
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


@compiled_with_arrays
def _arrival(state: _State, kind: int, stage: int) -> int:
    """Return when the next F or B of `stage` can start for its predecessor's sake, `_NOT_YET` if unknown."""
    me, last = state.stages[stage], len(state.stages) - 1
    m = me.count[kind]
    if kind == _F:
        before = 0 if stage == 0 else state.end[_F, stage - 1, m]
    elif stage == last:
        before = state.end[_F, last, m]
    else:
        before = state.end[_B, stage + 1, m]
    return int(before if before == _NOT_YET else before + me.lag[kind])


@compiled_with_arrays
def _has_room(state: _State, stage: int) -> bool:
    """Whether the memory of the stage's device holds one more F of the stage."""
    here = state.stages[stage]
    me = state.devices[here.home]
    return bool(me.memory + here.delta[_F] <= me.limit)


@compiled_with_arrays
def _has_pending(state: _State, device: int) -> bool:
    me = state.devices[device]
    return bool(me.filled < state.stages[device].count[_B] + state.stages[me.upper].count[_B])


@compiled_with_arrays
def _put_weight(state: _State, device: int) -> None:
    """Place the oldest pending W, which always can run."""
    me = state.devices[device]
    stage = state.pending[device, me.filled]
    me.filled += 1
    _append(state, _W, stage, me.time)


@compiled_with_arrays
def _put(state: _State, kind: int, stage: int) -> bool:
    """Place the next F or B of `stage`; return whether one is left, is ready and fits into memory."""
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


@compiled_with_arrays
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
