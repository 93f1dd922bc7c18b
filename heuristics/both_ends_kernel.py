"""The compiled loop of `both_ends`: devices that never idle, forward or backward in time.

A run backward in time is a run forward in mirrored time: the last microbatch is the first one, a W comes
before its B, a B before its F, and what frees memory takes it. So one loop serves both ends of a training
step. The F's and B's of a microbatch form a *chain*, in which each one waits for the one before it; W's do
not belong to it. An F or B is named by its place in the chain.
"""

from __future__ import annotations

from typing import NamedTuple

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.kernels.compiled import compiled

NEVER = 2**60
_NONE = -1


class Chain(NamedTuple):
    """The chain of all microbatches in one direction of time, and their W's; S stages and p devices.

    Times are ticks, and memory is what an operation takes in this direction, so that it may be negative.
    """

    device: Ints  #: (2 S,) device of each F and B
    stage: Ints  #: (2 S,) its stage
    backward: Ints  #: (2 S,) 1 if it is a B, 0 if it is an F
    ticks: Ints  #: (2 S,)
    takes: Ints  #: (2 S,) memory
    lag: Ints  #: (2 S,) from the end of the one before it until its input has arrived
    local: Ints  #: (p, k) places of each device
    weight_ticks: Ints  #: (S,) ticks of the W of each stage
    weight_takes: Ints  #: (S,) memory
    limit: Ints  #: (p,) memory limit of each device
    mirrored: bool  #: whether time runs backward, so that a B waits for its W


class Rule(NamedTuple):
    """By what a device chooses; the first two only count in mirrored time, where W's take memory."""

    room: float  #: memory that a W leaves free, in memory that a B takes
    ramp: float  #: share of the memory for B's until `first` that a W leaves free
    #: share of a W: a W runs in place of a longer F or B that would delay a more urgent one by more than that
    overrun: float


class Run(NamedTuple):
    """A run of all devices, which the loop changes; n microbatches."""

    clock: Ints  #: (p,) end of the last operation of each device
    held: Ints  #: (p,) memory that it holds
    weights: Ints  #: (p,) how many W's it has to run before any F or B
    first: Ints  #: (p,) about when the first F or B arrives that frees memory
    stop: Ints  #: (p,) tick from which on the device runs nothing more
    most: Ints  #: (2 S,) how many of each F and B are to be run
    most_weights: Ints  #: (S,)
    done: Ints  #: (2 S,) how many have been run
    done_weights: Ints  #: (S,)
    end: Ints  #: (2 S, n) their ends
    weight_end: Ints  #: (S, n)
    ran: Ints  #: (p, 3 n S / p, 2) the place that each device ran, or -1 - stage for a W, and the microbatch
    size: Ints  #: (p,) how many it ran


@compiled
def fill(chain: Chain, key: Floats, rule: Rule, run: Run) -> bool:
    """Let all devices run until they have nothing left or stop, the smallest `key` first; False if one idles.

    `key`, of shape (2 S, n), says of each F and B of a microbatch how late it may be.
    """
    while True:
        device = _next_device(run)
        if device == _NONE:
            return True
        place, ahead, arrives = _most_urgent(chain, key, run, device)
        weight = _next_weight(chain, key, rule, run, device)
        if place != _NONE and weight != _NONE and ahead:
            ticks, short = chain.ticks[place], chain.weight_ticks[weight]
            late = run.clock[device] + ticks - arrives
            if late > rule.overrun * short and short < ticks:
                place = _NONE
        if place == _NONE and weight == _NONE:
            return False
        _start(chain, run, device, place, weight)


@compiled
def _next_device(run: Run) -> int:
    """Return the device that is free first, of those that have not stopped; -1 if there is none."""
    device, earliest = _NONE, NEVER
    for d in range(len(run.clock)):
        if run.clock[d] < min(earliest, run.stop[d]):
            device, earliest = d, run.clock[d]
    return device


@compiled
def _most_urgent(chain: Chain, key: Floats, run: Run, device: int) -> tuple[int, bool, int]:
    """Return the place of the most urgent F or B that can start now, -1 if none can.

    Beside it, whether a more urgent one is known to arrive later, and when the most urgent of these arrives.
    """
    best, least, coming, ahead, arrives = _NONE, float(NEVER), float(NEVER), False, NEVER
    if run.weights[device] > 0:
        return best, ahead, arrives
    for place in chain.local[device]:
        k = run.done[place]
        if k == run.most[place] or (place > 0 and run.done[place - 1] <= k):
            continue
        if run.held[device] + max(0, chain.takes[place]) > chain.limit[device]:
            continue
        ready = -NEVER if place == 0 else run.end[place - 1, k] + chain.lag[place]
        if chain.mirrored and chain.backward[place] == 1:
            if run.done_weights[chain.stage[place]] <= k:
                continue
            ready = max(ready, run.weight_end[chain.stage[place], k])
        if ready <= run.clock[device]:
            if key[place, k] < least:
                best, least = place, key[place, k]
        elif key[place, k] < coming:
            coming, arrives = key[place, k], ready
    return best, coming < least, arrives


@compiled
def _next_weight(chain: Chain, key: Floats, rule: Rule, run: Run, device: int) -> int:
    """Return the stage of the W whose B is most urgent, of those that can run now; -1 if none can."""
    best, least = _NONE, float(NEVER)
    for place in chain.local[device]:
        if chain.backward[place] == 0:
            continue
        stage = chain.stage[place]
        k = run.done_weights[stage]
        if k == run.most_weights[stage] or (not chain.mirrored and run.done[place] <= k):
            continue
        if key[place, k] < least:
            best, least = place, key[place, k]
    if best == _NONE:
        return _NONE
    stage = chain.stage[best]
    if chain.mirrored and run.weights[device] == 0:
        each = chain.takes[best]
        until = max(0, run.first[device] - run.clock[device])
        left = max(rule.room * each, rule.ramp * until / chain.ticks[best] * each)
        if run.held[device] + chain.weight_takes[stage] + left > chain.limit[device]:
            return _NONE
    return int(stage)


@compiled
def _start(chain: Chain, run: Run, device: int, place: int, weight: int) -> None:
    """Run the F or B at a place on a device, or if that is -1 a W of the stage `weight`."""
    if place == _NONE:
        k, what = run.done_weights[weight], -1 - weight
        run.clock[device] += chain.weight_ticks[weight]
        run.held[device] += chain.weight_takes[weight]
        run.weight_end[weight, k] = run.clock[device]
        run.done_weights[weight] += 1
        run.weights[device] = max(0, run.weights[device] - 1)
    else:
        k, what = run.done[place], place
        run.clock[device] += chain.ticks[place]
        run.held[device] += chain.takes[place]
        run.end[place, k] = run.clock[device]
        run.done[place] += 1
    run.ran[device, run.size[device], 0], run.ran[device, run.size[device], 1] = what, k
    run.size[device] += 1
