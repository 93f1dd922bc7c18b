"""The bound `three times`: long B's do not all fit between the last F and the time by which they must end.

Take the V placement with equal stages, p > 1 devices and n > p microbatches, where F, B, W and a message take
f, b, w and c ticks. With memory for 2p activations, and a whole activation held until the end of W, the bound
says

    cost >= 2n (f + b + w) + (p - 1) (f + 4c + max(f, b + 2c)) + (p - 1) max(0, b - f - 2c) - (2p - 1) w.

This is larger than the bound `two times` if b > f + 2c. If less of an activation is held between B and W,
more W's can be pending, and the bound is lower than this formula.
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
    same paths: all B's have ended on the worker by t3 = T - v. The last B of a microbatch on the worker is at
    the worker's lowest stage. After it, the microbatch still runs its B's at lower stages, down to a stage
    of the frame's device, and its W at that stage, all within the frame.

    All B's that are left at t2 run on the worker between t2 and t3, one after another, so they take at most
    t3 - t2 = u - v. Only B's and W's of microbatches that the worker holds are left at t2. Let x be the ticks
    of these B's, and y the ticks of these W's. Then for any share s from 0 to 1,

        x + y = s x + ((1 - s) x + y) <= s (u - v) + the most of (1 - s) x + y that memory allows.

    For s = 0 the right-hand side is the most work left at t2 in `two_times_bound`. This bound uses the least
    right-hand side over several shares (`_shares`) instead.
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
    """Return the bound, in ticks, that follows from each frame and worker, shape (frames, workers)."""
    first_b = shortest(instance, until_first_backward)
    last_f = shortest(instance, after_last_forward)
    work = np.array([instance.work(device) for device in range(instance.devices)])[None, :]
    between = work - most_before(instance, first_b) - _most_left(instance, last_f)
    return np.where(between > 0, np.maximum(work, first_b + between + last_f), work)


def _most_left(instance: Instance, last_f: Ints) -> Ints:
    """Return the most work, in ticks, left on each worker when all its F's have ended.

    All F's have ended `last_f` ticks before the end of the frame. Both arrays have shape (frames, workers).
    """
    windows = last_f - shortest(instance, _after_last_backward)
    columns = [_least_over_shares(instance, worker, windows[:, worker]) for worker in range(instance.devices)]
    return np.array(columns).T


def _least_over_shares(instance: Instance, worker: int, windows: Ints) -> Ints:
    """Return the least, over the shares, of the bounds on the work left when a worker's F's have ended.

    The B's that are left must end within a number of ticks, which `windows` gives for each frame. Both arrays
    have the shape (frames,).
    """
    sums = []
    for share in _shares(instance, worker):
        part, whole_b = share.numerator, share.denominator
        sums.append((part * windows + most_held(instance, worker, whole_b - part, whole_b)) // whole_b)
    return np.asarray(np.min(sums, axis=0))


def _shares(instance: Instance, worker: int) -> set[Fraction]:
    """Return the shares s to try: 0, 1, and for each stage the s at which two ratios of the stage are equal.

    The two ratios are ((1 - s) b + w) / (memory held before B) and w / (memory held between B and W), where B
    and W take b and w ticks.
    """
    shares = {Fraction(0), Fraction(1)}
    for route in instance.placement.routes:
        for s in stages_on(route, worker):
            b, w = instance.duration(OpKind.B, s), instance.duration(OpKind.W, s)
            held, pending = instance.memory_delta(OpKind.F, s), -instance.memory_delta(OpKind.W, s)
            if pending > 0:
                shares.add(1 - Fraction(w * (held - pending), b * pending))
    return {share for share in shares if 0 <= share <= 1}


def _after_last_backward(instance: Instance, route: Route) -> Ints:
    """Return the least ticks from the end of each worker's last B to the end of each frame.

    The shape is (frames, workers). The last B is at the worker's lowest stage. If the frame's device has no
    stage at or below this one, nothing is known. The entry is then minus the worker's work, which leaves room
    for all of the worker's B's.
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
