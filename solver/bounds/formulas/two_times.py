"""The bound of two times: how much a device has to do between its first B and its last F.

A time limit for another device's span says from when on the first B, and until when the last F, can run here.

References
----------
In the V placement with equal stages the bound is a closed formula. With memory for 2p activations, more than
p microbatches, and W's that hold at least their share of an activation, it says

    cost >= 2n (f + b + w) + (p - 1) (f + 4c + max(f, b + 2c)) - (2p - 1) w,

which the greedy schedule of Qi et al., arXiv:2405.15362, meets on most published settings of up to 16
devices. `tightpipe.heuristics.v_beat` makes schedules that meet it under conditions that are proven.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from tightpipe.core.instance import Instance
from tightpipe.core.result import Bound

from .frame_paths import after_last_forward, most_before, shortest, until_first_backward, whole
from .held import most_held


@dataclass(frozen=True, slots=True)
class TwoTimes:
    """The numbers of the bound for the worker and the frame that give the largest one. Times are in ticks.

    Parameters
    ----------
    frame
        Device in whose frame the two times are counted; None for the makespan, where all share one.
    worker
        Device whose work is counted.
    first_backward
        The first time t1, from the start of the frame: no B starts on the worker before it.
    after_last_forward
        All F's of the worker have ended so long before the end of the frame.
    work
        Work of the worker.
    before, held
        The most work that it can have done before the first time, in its memory and since its own first
        start, and the most that it can have left at the second one.
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
        """The least cost that follows, in ticks."""
        between = self.work - self.before - self.held
        if between <= 0:
            return self.work
        return max(self.work, self.first_backward + between + self.after_last_forward)


def two_times_bound(instance: Instance) -> Bound:
    """Bound the cost by what a device has to do between its first B and its last F.

    Notes
    -----
    A frame is an interval of length T = cost in which all operations of a device lie; for the makespan all
    devices share one. Take any device, called the worker, and the frame of any device. Two times follow from
    paths of single microbatches, on which every operation takes at least its least time:

    - No B starts on the worker before t1, counted from the start of the frame. For before that B lie an F of
      the same microbatch in the frame, the F's of all later stages, and the B's of all stages above the
      worker's highest. Until t1 the worker only runs F's, and no memory is freed, so the F's that have begun
      fit into its memory together. That limits the work that it can have done by then (`most_forwards`). It
      has not done more either than fits between its own earliest start and t1.
    - All F's have ended on the worker by t2 = T - u. For after the last F of a microbatch there come the F's
      of later stages, the B's down to a stage of the frame's device, and its W, all within the frame. What
      the worker still has to do at t2 are B's and W's of microbatches that it holds, and these fit into
      its memory together. That limits the work that can be left (`most_held`).

    The rest of the worker's work lies between t1 and t2. Where there is any, t2 - t1 is at least as long as
    that work takes, so T >= t1 + u + work - (the most before t1) - most_held. Where there is none, nothing
    follows but that T is at least the work. With two directions the shorter of the paths counts.

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
    """Return the numbers of the largest bound of two times over all workers and frames."""
    first_b = shortest(instance, until_first_backward)
    last_f = shortest(instance, after_last_forward)
    before = most_before(instance, first_b)
    found = []
    for worker in range(instance.devices):
        frame = int((first_b + last_f - before)[:, worker].argmax())
        times = int(first_b[frame, worker]), int(last_f[frame, worker])
        work = instance.work(worker), int(before[frame, worker]), most_held(instance, worker)
        found.append(TwoTimes(None if whole(instance) else frame, worker, *times, *work))
    return max(found, key=lambda times: times.cost)
