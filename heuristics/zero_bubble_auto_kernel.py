"""The compiled loop of one variant of the automatic zero-bubble greedy.

The greedy decides round after round, and in a round device after device. In the warm-up, each device runs
the F's that memory and the variant allow before its first B. Then come n - 1 rounds, in each of which every
device runs one B, and most devices run one F before that. From its B on a W is *pending*; pending W's fill
idle time, and run when memory is full. The operations of each kind run in the sequence of the microbatches,
so a sequence of kinds for each device describes the result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled_with_arrays
from tightpipe.model.operation import OpKind

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)


class Problem(NamedTuple):
    """The numbers of p devices with one stage each; times are in ticks.

    `handicap` gives for each device the work of the busiest device less its own work. A device can idle that
    long at no cost. The published greedy has no handicap, because that greedy was made for equal devices.
    """

    duration: Ints  # (3, p)
    delta: Ints  # (3, p)
    lag: Ints  # (3, p): communication time from the predecessor on the neighbouring device
    limit: Ints  # (p,)
    handicap: Ints  # (p,)
    microbatches: int


class Variant(NamedTuple):
    """Three choices, which make the eight variants of the greedy; each option is best for some instances."""

    bubble_before_first_b: bool  # leave out a warm-up F that would delay the first B
    prioritise_b: bool  # leave out an F that would delay a B that is about to arrive
    greedy_w: bool  # run a W that is longer than the idle time even where idling costs nothing


class _State(NamedTuple):
    placed: Ints  # (3, p): number of operations placed, which is also the microbatch of the next one
    end: Ints  # (2, p, n): end of each F and B
    time: Ints  # (p,): end of the device's last operation
    memory: Ints  # (p,)
    idle: Ints  # (p,): idle time since the device's first F, less the handicap
    kinds: Ints  # (p, 3n): kinds of the operations placed so far


@compiled_with_arrays
def run_variant(problem: Problem, variant: Variant) -> Ints:
    """Return the kinds of the operations of each device in sequence, shape (p, 3n), for one variant."""
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
    """Place the F's of the first microbatch, then further F's, then the B's of the first microbatch."""
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
    """Return the number of F's that each device runs between its first F and its first B."""
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
        # A device runs at least one F fewer than the device before it, unless the latter runs all its F's.
        before = extra[device - 1]
        extra[device] = min(extra[device], before if before == most else max(before - 1, 0))
    return extra


@compiled_with_arrays
def _round_of_forwards(problem: Problem, variant: Variant, state: _State) -> None:
    p = len(state.time)
    wanted = np.zeros(p, np.bool_)
    for device in range(p - 1, -1, -1):
        # An F for which the next device has no use yet would only take memory.
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
    """Return whether the device should run an F before its next B."""
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
    """Return the ticks of the W's that have to run before the next F fits into memory."""
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
    """Place pending W's until an F fits into memory.

    The pending W's free enough memory: without them, no more activations are held than in the warm-up, which
    kept within the limit.
    """
    while state.memory[device] + problem.delta[_F, device] > problem.limit[device]:
        _put(problem, state, _W, device)


@compiled_with_arrays
def _round_of_backwards(problem: Problem, variant: Variant, state: _State) -> None:
    for device in range(len(state.time) - 1, -1, -1):
        _fill(problem, variant, state, _B, device)
        if device == 0 and state.placed[_F, 0] == problem.microbatches:
            _put_weights(problem, state, 0)  # this delays no other device: none waits for a B of device 0
        _put(problem, state, _B, device)


@compiled_with_arrays
def _fill(problem: Problem, variant: Variant, state: _State, kind: int, device: int) -> None:
    """Place the pending W's that end by the tick at which the input of the next `kind` arrives.

    One more W is placed, which ends later, if idling until that tick would cost time, or if the variant has
    `greedy_w`.
    """
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
    """Return the tick when a neighbour's result for the next `kind` arrives; 0 if none is needed."""
    sender = device - 1 if kind == _F else device + 1
    if kind == _W or sender < 0 or sender == len(state.time):
        return 0
    return int(state.end[kind, sender, state.placed[kind, device]] + problem.lag[kind, device])


@compiled_with_arrays
def _free_idle(state: _State, device: int) -> int:
    """Return the ticks that a device can idle until its idle time is the largest of all devices."""
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
