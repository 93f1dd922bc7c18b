"""The bounds `two times` and `three times`: what a device has to do between its first B and its last F.

Each argument is about two devices, which may be the same one: the first one has a frame (`paths`), and the
second one is the worker. Its first B cannot run too early in the frame and its last F cannot run too late,
because the microbatches of these operations need time to come from the device of the frame and to return
there. So a limit on the span of one device limits the work of another.

The bound `three times` adds that long B's do not all fit between the worker's last F and the time by which
its last B must end.

Notes
-----
In the V placement with equal stages both bounds are closed formulas. Let there be p > 1 devices and n > p
microbatches, let F, B, W and a message take f, b, w and c ticks, and let memory have room for 2p activations.
If the share of an activation that is held between B and W is at least w / (b + w), the bound `two times` is

    cost >= 2n (f + b + w) + (p - 1) (f + 4c + max(f, b + 2c)) - (2p - 1) w.

If a whole activation is held until the end of W, the bound `three times` is

    cost >= 2n (f + b + w) + (p - 1) (f + 4c + max(f, b + 2c)) + (p - 1) max(0, b - f - 2c) - (2p - 1) w.

It is larger than the bound `two times` if b > f + 2c. If less of an activation is held between B and W, more
W's can be pending, and the bound is lower than this formula.

References
----------
The greedy schedule of Qi et al., arXiv:2405.15362, meets the bound `two times` on most published settings of
up to 16 devices. `tightpipe.heuristics.v_beat` makes schedules that provably meet it under the conditions of
docs/theorem.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound

from .paths import after_last_backward, after_last_forward, shortest, until_first_backward
from .ramps import most_before, most_held, nodes_on

_SHARES = 8  # so many stages and classes of a device, at most, give a share to try


@dataclass(frozen=True, slots=True)
class TwoTimes:
    """The numbers from which the bound of one worker and one frame follows. Times are in ticks.

    Parameters
    ----------
    frame
        Device in whose frame the two times are counted; None for the makespan, where all devices share one.
    worker
        Device whose work is counted.
    first_backward
        The first time t1, counted from the start of the frame: no B starts on the worker before t1.
    after_last_forward
        Least time u from the end of the worker's last F to the end of the frame. The second time is T - u,
        where T is the length of the frame.
    work
        Work of the worker.
    before, held
        The most work that the worker can have done before the first time, given its memory and its earliest
        start, and the most work that it can have left at the second time, given its memory.
    """

    frame: int | None
    worker: int
    first_backward: int
    after_last_forward: int
    work: int
    before: int
    held: int

    @property
    def cost(self) -> int:
        """The bound that follows from these numbers, in ticks."""
        between = self.work - self.before - self.held
        if between <= 0:
            return self.work
        return max(self.work, self.first_backward + between + self.after_last_forward)


def two_times_bound(instance: Instance) -> Bound:
    """Bound the cost by what a device has to do between its first B and its last F.

    Notes
    -----
    A frame is an interval of length T = cost in which all operations of a device lie; for the makespan all
    devices share one frame. Take any device, called the worker, and the frame of any device. Two times follow
    from paths of single microbatches, on which every operation takes at least its least time:

    - No B starts on the worker before t1, counted from the start of the frame. Before any such B, the same
      microbatch runs an F in the frame, its F's at all later stages, and its B's at all stages above the
      worker's highest. Until t1 the worker only runs F's, and no memory is freed, so the F's that have begun
      fit into its memory together. That limits the work that the worker can have done by t1
      (`most_forwards`). If paths show that the worker does not start before the frame, this work also fits
      between the worker's earliest start and t1.
    - All F's have ended on the worker by t2 = T - u. After its last F on the worker, a microbatch still runs
      its F's at later stages, its B's down to a stage of the frame's device, and its W at that stage, all
      within the frame. At t2 only B's and W's of microbatches that the worker holds are left to run, and
      these microbatches fit into its memory together. That limits the work that can be left (`most_held`).

    The rest of the worker's work lies between t1 and t2. If there is any, t2 - t1 is at least as long as that
    work takes, so T >= t1 + u + work - (the most before t1) - most_held. If there is none, it only follows
    that T is at least the work. Of the paths of several classes of microbatches,
    and of two directions, the shortest counts. Paths pass through all slices of a microbatch (`frames`).

    No F runs together with a B before t1 or after t2, so pairs only shorten the paths and the worker's work.
    Flushes and busy links only add constraints.
    """
    begun = perf_counter()
    times = two_times(instance)
    whole = "all devices" if times.frame is None else f"all of device {times.frame}"
    argument = (
        f"device {times.worker} works {times.work} ticks, and with less than {times.cost} for {whole}, too "
        f"many of them would have to lie between its own first B and last F"
    )
    return Bound(times.cost, "two times", argument, perf_counter() - begun)


def two_times(instance: Instance) -> TwoTimes:
    """Return the numbers of the bound `two times` for the worker and the frame for which it is largest."""
    first_b = shortest(instance, until_first_backward)
    last_f = shortest(instance, after_last_forward)
    before = most_before(instance, first_b)
    found = []
    for worker in range(instance.devices):
        frame = int((first_b + last_f - before)[:, worker].argmax())
        times = int(first_b[frame, worker]), int(last_f[frame, worker])
        work = works(instance)[worker], int(before[frame, worker]), most_held(instance, worker)
        found.append(TwoTimes(None if instance.whole else frame, worker, *times, *work))
    return max(found, key=lambda times: times.cost)


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
    work = works(instance)[worker]
    argument = (
        f"device {worker} works {work} ticks, and with less than {value} in all, too many of them "
        f"would have to lie between its first B and last F, as the B's after it have to end in time"
    )
    return Bound(value, "three times", argument, perf_counter() - begun)


def three_times(instance: Instance) -> Ints:
    """Return the bound, in ticks, that follows from each frame and worker, shape (frames, workers)."""
    first_b = shortest(instance, until_first_backward)
    last_f = shortest(instance, after_last_forward)
    work = np.array(works(instance))[None, :]
    between = work - most_before(instance, first_b) - _most_left(instance, last_f)
    return np.where(between > 0, np.maximum(work, first_b + between + last_f), work)


def _most_left(instance: Instance, last_f: Ints) -> Ints:
    """Return the most ticks left by frame and worker `last_f` ticks before the end, when F's have ended."""
    windows = last_f - shortest(instance, after_last_backward)
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


def _shares(instance: Instance, worker: int) -> list[Fraction]:
    """Return the shares s to try: 0, 1, and for each stage the s at which two ratios of the stage are equal.

    Of many stages, counted once for each class of microbatches, only some are looked at.

    The two ratios are ((1 - s) b + w) / (memory held before B) and w / (memory held between B and W), where B
    and W take b and w ticks.
    """
    shares = {Fraction(0), Fraction(1)}
    nodes = nodes_on(instance, worker)
    for at in nodes[:: -(-len(nodes) // _SHARES)]:
        b, w = instance.duration(OpKind.B, *at), instance.duration(OpKind.W, *at)
        held, pending = instance.memory_delta(OpKind.F, *at), -instance.memory_delta(OpKind.W, *at)
        if pending > 0:
            shares.add(1 - Fraction(w * (held - pending), b * pending))
    return [share for share in shares if 0 <= share <= 1]
