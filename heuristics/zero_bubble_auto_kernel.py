"""One variant of the automatic zero-bubble greedy, compiled: decide round after round, device by device.

A warm-up starts as many F's as pay before the first B arrives. Then come n - 1 rounds: in each every
device runs one B, and most run one F before it. W's wait; they fill idle time, and run where memory
is full. Within a device microbatches come in order, so a sequence of kinds says it all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled_with_arrays

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)


class Problem(NamedTuple):
    """What a variant reads: p devices with one stage each, times in ticks.

    `handicap` is how much less work a device has than the busiest one: that much idle time costs nothing.
    The published greedy, made for equal devices, has none.
    """

    duration: Ints  # (3, p)
    delta: Ints  # (3, p)
    lag: Ints  # (3, p): from the neighbour's operation that one waits for
    limit: Ints  # (p,)
    handicap: Ints  # (p,)
    microbatches: int


class Variant(NamedTuple):
    """Three choices that the greedy cannot make well once and for all."""

    bubble_before_first_b: bool  # leave out a warm-up F that would delay the first B
    prioritise_b: bool  # leave out an F that would delay a B about to arrive
    greedy_w: bool  # fill an idle time that is shorter than W even where idling costs nothing


class _State(NamedTuple):
    placed: Ints  # (3, p): operations placed; the next one's microbatch
    end: Ints  # (2, p, n): of F and B
    time: Ints  # (p,): end of the device's last operation
    memory: Ints  # (p,)
    idle: Ints  # (p,): since the device's first F, less the handicap
    kinds: Ints  # (p, 3n): the result


@compiled_with_arrays
def run_variant(problem: Problem, variant: Variant) -> Ints:
    """Return the kinds of the operations of each device in sequence, shape (p, 3n)."""
    p, n = len(problem.limit), problem.microbatches
    state = _State(
        np.zeros((3, p), np.int64),
        np.zeros((2, p, n), np.int64),
        np.zeros(p, np.int64),
        np.zeros(p, np.int64),
        -problem.handicap,
        np.zeros((p, 3 * n), np.int64),
    )
    _warm_up(problem, variant, state)
    for _ in range(n - 1):
        _round_of_forwards(problem, variant, state)
        _round_of_backwards(problem, variant, state)
    for device in range(p):
        _put_weights(problem, state, device)
    return state.kinds


@compiled_with_arrays
def _warm_up(problem: Problem, variant: Variant, state: _State) -> None:
    """Place the first microbatch's F's, the F's that run until its B's arrive, and these B's."""
    p = len(state.time)
    for device in range(p):
        _put(problem, state, _F, device)
    extra = _extra_forwards(problem, variant, state)
    for device in range(p):
        for _ in range(extra[device]):
            _put(problem, state, _F, device)
    for device in range(p - 1, -1, -1):
        _put(problem, state, _B, device)


@compiled_with_arrays
def _extra_forwards(problem: Problem, variant: Variant, state: _State) -> Ints:
    """Count the F's to run on each device between the first one and the first B."""
    p, most = len(state.time), problem.microbatches - 1
    extra = np.zeros(p, np.int64)
    b_end = state.time[p - 1] + problem.duration[_B, p - 1]
    for device in range(p - 2, -1, -1):
        arrival = b_end + problem.lag[_B, device]
        forward, delta = problem.duration[_F, device], problem.delta[_F, device]
        time, memory = state.time[device], state.memory[device] + delta
        while extra[device] < most and memory <= problem.limit[device]:
            if time + forward > arrival if variant.bubble_before_first_b else time >= arrival:
                break
            extra[device] += 1
            time += forward
            memory += delta
        b_end = max(time, arrival) + problem.duration[_B, device]
    for device in range(1, p):
        # one F fewer than the device before, unless that one has started all microbatches
        before = extra[device - 1]
        extra[device] = min(extra[device], before if before == most else max(before - 1, 0))
    return extra


@compiled_with_arrays
def _round_of_forwards(problem: Problem, variant: Variant, state: _State) -> None:
    p = len(state.time)
    wanted = np.zeros(p, np.bool_)
    for device in range(p - 1, -1, -1):
        # an F for which the next device has no use yet would only hold memory
        wanted[device] = (device == p - 1 or wanted[device + 1]) and _wants_forward(
            problem, variant, state, device
        )
    for device in range(p):
        if wanted[device]:
            _make_room(problem, state, device)
            _fill(problem, variant, state, _F, device)
            _put(problem, state, _F, device)


@compiled_with_arrays
def _wants_forward(problem: Problem, variant: Variant, state: _State, device: int) -> bool:
    """Whether to run an F before the device's next B."""
    p, n = len(state.time), problem.microbatches
    if state.placed[_F, device] == n:
        return False
    ahead = device < p - 1 and state.placed[_F, device] >= state.placed[_F, device + 1] + 2
    if not (variant.prioritise_b and ahead):
        return True
    after = device + 1
    arrival = (
        state.time[after]
        + problem.duration[_F, after]
        + problem.duration[_B, after]
        + problem.lag[_B, device]
    )
    wait = arrival - state.time[device]
    if wait <= 0:
        return False
    in_time = problem.duration[_F, device] + _room_time(problem, state, device) <= wait
    return bool(in_time or wait > _free_idle(state, device))


@compiled_with_arrays
def _room_time(problem: Problem, state: _State, device: int) -> int:
    """Return how long the W's take that have to run before the next F for memory's sake."""
    excess = state.memory[device] + problem.delta[_F, device] - problem.limit[device]
    pending = state.placed[_B, device] - state.placed[_W, device]
    time = 0
    while excess > 0 and pending > 0:
        time += problem.duration[_W, device]
        excess += problem.delta[_W, device]
        pending -= 1
    return time


@compiled_with_arrays
def _make_room(problem: Problem, state: _State, device: int) -> None:
    """Place W's until an F fits.

    They suffice: no more activations are in flight than after the warm-up, whose memory was checked.
    """
    while state.memory[device] + problem.delta[_F, device] > problem.limit[device]:
        _put(problem, state, _W, device)


@compiled_with_arrays
def _round_of_backwards(problem: Problem, variant: Variant, state: _State) -> None:
    for device in range(len(state.time) - 1, -1, -1):
        _fill(problem, variant, state, _B, device)
        if device == 0 and state.placed[_F, 0] == problem.microbatches:
            _put_weights(problem, state, 0)  # nobody waits for the B's of device 0
        _put(problem, state, _B, device)


@compiled_with_arrays
def _fill(problem: Problem, variant: Variant, state: _State, kind: int, device: int) -> None:
    """Place W's until the next operation of `kind` arrives; one may overrun if idling would cost more."""
    arrival = _arrival(problem, state, kind, device)
    weight = problem.duration[_W, device]
    while _has_pending(state, device) and state.time[device] + weight <= arrival:
        _put(problem, state, _W, device)
    wait = arrival - state.time[device]
    costs = variant.greedy_w or wait > _free_idle(state, device)
    if wait > 0 and costs and _has_pending(state, device):
        _put(problem, state, _W, device)


@compiled_with_arrays
def _arrival(problem: Problem, state: _State, kind: int, device: int) -> int:
    """Return when the neighbour's result for the next operation of `kind` is there; 0 without one."""
    sender = device - 1 if kind == _F else device + 1
    if kind == _W or sender < 0 or sender == len(state.time):
        return 0
    return int(state.end[kind, sender, state.placed[kind, device]] + problem.lag[kind, device])


@compiled_with_arrays
def _free_idle(state: _State, device: int) -> int:
    """Return how long a device may idle before its idle time is the largest of all."""
    return int(max(0, state.idle.max()) - state.idle[device])


@compiled_with_arrays
def _has_pending(state: _State, device: int) -> bool:
    return bool(state.placed[_W, device] < state.placed[_B, device])


@compiled_with_arrays
def _put_weights(problem: Problem, state: _State, device: int) -> None:
    while _has_pending(state, device):
        _put(problem, state, _W, device)


@compiled_with_arrays
def _put(problem: Problem, state: _State, kind: int, device: int) -> None:
    start = max(state.time[device], _arrival(problem, state, kind, device))
    if state.placed[_F, device] > 0:
        state.idle[device] += start - state.time[device]
    state.time[device] = start + problem.duration[kind, device]
    if kind != _W:
        state.end[kind, device, state.placed[kind, device]] = state.time[device]
    state.memory[device] += problem.delta[kind, device]
    state.kinds[device, state.placed[:, device].sum()] = kind
    state.placed[kind, device] += 1
