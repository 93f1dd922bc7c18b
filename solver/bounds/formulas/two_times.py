"""The bound `two times`: how much a device has to do between its first B and its last F.

A limit on the span of another device also limits how early the first B and how late the last F can run.

References
----------
In the V placement with equal stages the bound is a closed formula. Let there be p devices and n > p
microbatches, let F, B, W and a message take f, b, w and c ticks, and let memory have room for 2p activations.
If the share of an activation that is held between B and W is at least w / (b + w), the bound is

    cost >= 2n (f + b + w) + (p - 1) (f + 4c + max(f, b + 2c)) - (2p - 1) w.

The greedy schedule of Qi et al., arXiv:2405.15362, meets it on most published settings of up to 16 devices.
`tightpipe.heuristics.v_beat` makes schedules that provably meet it under the conditions of docs/theorem.md.
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
    that T is at least the work. With two directions the shorter of the paths counts.

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
        work = instance.work(worker), int(before[frame, worker]), most_held(instance, worker)
        found.append(TwoTimes(None if whole(instance) else frame, worker, *times, *work))
    return max(found, key=lambda times: times.cost)
