"""The compiled loop of `both_ends`: devices that never idle, forward or backward in time.

A run backward in time is a run forward in mirrored time: the last microbatch is the first one, a W comes
before its B, a B before its F, and what frees memory takes it. So one loop serves both ends of a step. What
a microbatch runs, except for W's, is a *line* of steps, each of which waits for the one before it.
"""

from __future__ import annotations

from typing import NamedTuple

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.kernels.compiled import compiled

NEVER = 2**60
_NONE = -1


class Line(NamedTuple):
    """What each microbatch runs, in the sequence of one direction of time; S stages and p devices.

    Times are ticks, and memory is what an operation takes in this direction, so that it may be negative.
    """

    device: Ints  #: (2 S,) device of each step
    stage: Ints  #: (2 S,) its stage
    backward: Ints  #: (2 S,) 1 if the step is a B
    ticks: Ints  #: (2 S,)
    takes: Ints  #: (2 S,) memory
    lag: Ints  #: (2 S,) from the end of the step before it until its input has arrived
    steps: Ints  #: (p, k) steps of each device
    weight_ticks: Ints  #: (S,) ticks of the W of each stage
    weight_takes: Ints  #: (S,) memory
    limit: Ints  #: (p,) memory limit of each device
    mirrored: bool  #: whether time runs backward, so that a B waits for its W


class Style(NamedTuple):
    """By what a device chooses."""

    room: float  #: memory that a W leaves free, in memory that a B takes
    ramp: float  #: share of the memory for B's until `first` that a W leaves free
    overrun: float  #: share of a W; a W runs in place of a step that would delay a more urgent one by more


class Filling(NamedTuple):
    """A run of all devices, which the loop changes; n microbatches."""

    clock: Ints  #: (p,) end of the last operation of each device
    held: Ints  #: (p,) memory that it holds
    weights: Ints  #: (p,) how many W's it has to run before any step
    first: Ints  #: (p,) about when the first step arrives that frees memory
    stop: Ints  #: (p,) tick from which on the device runs nothing more
    most: Ints  #: (2 S,) how many of each step are to be run
    most_weights: Ints  #: (S,)
    done: Ints  #: (2 S,) how many have been run
    done_weights: Ints  #: (S,)
    end: Ints  #: (2 S, n) end of each step
    weight_end: Ints  #: (S, n)
    ran: Ints  #: (p, 6 n / p * S, 2) the step that each device ran, or -1 - stage for a W, and the microbatch
    size: Ints  #: (p,) how many it ran


@compiled
def fill(line: Line, key: Floats, style: Style, run: Filling) -> bool:
    """Let all devices run until they have nothing left or stop, the smallest `key` first; False if one idles.

    `key`, of shape (2 S, n), says of each step and microbatch how late it may be.
    """
    while True:
        device = _next_device(run)
        if device == _NONE:
            return True
        step, ahead, arrives = _most_urgent(line, key, run, device)
        weight = _next_weight(line, key, style, run, device)
        if step != _NONE and weight != _NONE and ahead:
            ticks, short = line.ticks[step], line.weight_ticks[weight]
            late = run.clock[device] + ticks - arrives
            if late > style.overrun * short and short < ticks:
                step = _NONE
        if step == _NONE and weight == _NONE:
            return False
        _start(line, run, device, step, weight)


@compiled
def _next_device(run: Filling) -> int:
    """Return the device that is free first, of those that have not stopped; -1 if there is none."""
    device, earliest = _NONE, NEVER
    for d in range(len(run.clock)):
        if run.clock[d] < min(earliest, run.stop[d]):
            device, earliest = d, run.clock[d]
    return device


@compiled
def _most_urgent(line: Line, key: Floats, run: Filling, device: int) -> tuple[int, bool, int]:
    """Return the most urgent step that can start now, -1 if none can.

    Beside it, whether a more urgent one is known to arrive later, and when the most urgent of these arrives.
    """
    best, least, coming, ahead, arrives = _NONE, float(NEVER), float(NEVER), False, NEVER
    if run.weights[device] > 0:
        return best, ahead, arrives
    for step in line.steps[device]:
        k = run.done[step]
        if k == run.most[step] or (step > 0 and run.done[step - 1] <= k):
            continue
        if run.held[device] + max(0, line.takes[step]) > line.limit[device]:
            continue
        ready = -NEVER if step == 0 else run.end[step - 1, k] + line.lag[step]
        if line.mirrored and line.backward[step] == 1:
            if run.done_weights[line.stage[step]] <= k:
                continue
            ready = max(ready, run.weight_end[line.stage[step], k])
        if ready <= run.clock[device]:
            if key[step, k] < least:
                best, least = step, key[step, k]
        elif key[step, k] < coming:
            coming, arrives = key[step, k], ready
    return best, coming < least, arrives


@compiled
def _next_weight(line: Line, key: Floats, style: Style, run: Filling, device: int) -> int:
    """Return the stage of the W whose B is most urgent, of those that can run now; -1 if none can."""
    best, least = _NONE, float(NEVER)
    for step in line.steps[device]:
        if line.backward[step] == 0:
            continue
        stage = line.stage[step]
        k = run.done_weights[stage]
        if k == run.most_weights[stage] or (not line.mirrored and run.done[step] <= k):
            continue
        if key[step, k] < least:
            best, least = step, key[step, k]
    if best == _NONE:
        return _NONE
    stage = line.stage[best]
    if line.mirrored and run.weights[device] == 0:
        each = line.takes[best]
        until = max(0, run.first[device] - run.clock[device])
        left = max(style.room * each, style.ramp * until / line.ticks[best] * each)
        if run.held[device] + line.weight_takes[stage] + left > line.limit[device]:
            return _NONE
    return int(stage)


@compiled
def _start(line: Line, run: Filling, device: int, step: int, weight: int) -> None:
    """Run a step, or if that is -1 a W of the stage `weight`, on a device."""
    if step == _NONE:
        k, what = run.done_weights[weight], -1 - weight
        run.clock[device] += line.weight_ticks[weight]
        run.held[device] += line.weight_takes[weight]
        run.weight_end[weight, k] = run.clock[device]
        run.done_weights[weight] += 1
        run.weights[device] = max(0, run.weights[device] - 1)
    else:
        k, what = run.done[step], step
        run.clock[device] += line.ticks[step]
        run.held[device] += line.takes[step]
        run.end[step, k] = run.clock[device]
        run.done[step] += 1
    run.ran[device, run.size[device], 0], run.ran[device, run.size[device], 1] = what, k
    run.size[device] += 1
