"""The bound of three times: long B's do not all fit between the last F and the time when they must be done.

In the V placement with equal stages it is larger than the bound of two times where b > f + 2c. With memory
for 2p activations, more than p microbatches, and W's that hold as much as an activation, it says

    cost >= 2n (f + b + w) + (p - 1) (f + 4c + max(f, b + 2c)) + (p - 1) max(0, b - f - 2c) - (2p - 1) w.

Where W's hold less, more of them can be pending, and the bound is lower than that.
"""

from __future__ import annotations

from fractions import Fraction
from time import perf_counter

import numpy as np

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.placement import Route
from tightpipe.core.result import Bound
from tightpipe.kernels.arrays import Ints

from .frame_paths import after_last_forward, most_before, shortest, stages_on, until_first_backward, whole
from .held import most_held
from .routes import earliest_starts, least_time


def three_times_bound(instance: Instance) -> Bound:
    """Bound the cost by what a device has to do around its first B, its last F and its last B.

    Notes
    -----
    The frame, the worker, t1 and t2 = T - u are those of `two_times_bound`. A third time follows from the
    same paths: all B's have ended on the worker by t3 = T - v. For after the last B of a microbatch there, at
    its lowest stage, come the B's of earlier stages, down to one of the frame's device, and its W.

    All B's that are left at t2 run on the worker between t2 and t3, one after another, so they take at most
    t3 - t2 = u - v. What is left at t2 is B's and W's of microbatches that the worker holds. Let x be the
    work of the B's and y that of the W's. Then for any share s from 0 to 1,

        x + y = s x + ((1 - s) x + y) <= s (u - v) + the most of (1 - s) x + y that memory allows.

    With s = 0 this is the bound of two times. The least sum over some shares takes the place of the most work
    left at t2 there.
    """
    begun = perf_counter()
    costs = three_times(instance)
    value, worker = int(costs.max()), int(costs.max(axis=0).argmax())
    work = instance.work(worker)
    argument = (
        f"device {worker} works {work} ticks, and with less than {value} in all, too many of them "
        f"would have to lie between its first B and last F, as the B's after it have to end in time"
    )
    return Bound(value, "three times", argument, perf_counter() - begun)


def three_times(instance: Instance) -> Ints:
    """Return the least cost that follows for each frame and worker, in ticks, shape (frames, workers)."""
    first_b = shortest(instance, until_first_backward)
    last_f = shortest(instance, after_last_forward)
    work = np.array([instance.work(device) for device in range(instance.devices)])[None, :]
    between = work - most_before(instance, first_b) - _most_left(instance, last_f)
    return np.where(between > 0, np.maximum(work, first_b + between + last_f), work)


def _most_left(instance: Instance, last_f: Ints) -> Ints:
    """Return the most work left on each worker when all its F's have ended, shape (frames, workers)."""
    windows = last_f - shortest(instance, _after_last_backward)
    columns = [_least_over_shares(instance, worker, windows[:, worker]) for worker in range(instance.devices)]
    return np.array(columns).T


def _least_over_shares(instance: Instance, worker: int, windows: Ints) -> Ints:
    """Return the most work left on a worker, for each number of ticks in which its B's have to run."""
    sums = []
    for share in _shares(instance, worker):
        part, whole_b = share.numerator, share.denominator
        sums.append((part * windows + most_held(instance, worker, whole_b - part, whole_b)) // whole_b)
    return np.asarray(np.min(sums, axis=0))


def _shares(instance: Instance, worker: int) -> set[Fraction]:
    """Return 0, 1 and the shares at which memory counts as much for a stage's W as for its B and W."""
    shares = {Fraction(0), Fraction(1)}
    for route in instance.placement.routes:
        for s in stages_on(route, worker):
            b, w = instance.duration(OpKind.B, s), instance.duration(OpKind.W, s)
            held, pending = instance.memory_delta(OpKind.F, s), -instance.memory_delta(OpKind.W, s)
            if pending > 0:
                shares.add(1 - Fraction(w * (held - pending), b * pending))
    return {share for share in shares if 0 <= share <= 1}


def _after_last_backward(instance: Instance, route: Route) -> Ints:
    """Return the ticks from each worker's last B to the end of each frame, shape (frames, workers).

    Where no stage of the frame's device comes after that B, nothing is known, which is said by a number so
    small that all work of the worker fits.
    """
    start, last = earliest_starts(instance, route), instance.stages - 1
    ended = [start[2 * last + 1 - s] + least_time(instance, OpKind.BW, s, route) for s in range(last + 1)]
    held = [stages_on(route, device) for device in range(instance.devices)]
    after = np.empty((len(held), len(held)), np.int64)
    for worker, stages in enumerate(held):
        lowest, nothing_known = stages[0], -instance.work(worker)
        b_ends = start[2 * last + 1 - lowest] + least_time(instance, OpKind.B, lowest, route)
        for frame, frame_stages in enumerate(held):
            ends = [ended[s] for s in (range(last + 1) if whole(instance) else frame_stages) if s <= lowest]
            after[frame, worker] = max(ends) - b_ends if ends else nothing_known
    return after
