"""When devices begin, such that the words of a schedule cost no more, and as few of them wait as can be.

Under `device_span` a device may begin later than it could, and words of least cost leave some freedom there.
The annealing keeps these times for many moves. Where every device begins as early as it may, most devices are
just in time for another one, and many moves cost more that would cost nothing if that one began earlier.
Times in the middle of what is possible leave room on both sides.
"""

from __future__ import annotations

import numpy as np

from tightpipe.core.instance import Objective
from tightpipe.core.retime import begin_distances
from tightpipe.core.schedule import Schedule
from tightpipe.kernels.arrays import Ints


def central_begins(schedule: Schedule) -> Ints:
    """Return when each device may begin, in ticks, at least 0, shape (p,).

    The words of the schedule cost no more than the schedule does in any other times. The times possible for
    each pair of devices form an interval, and the result is the mean of its ends over all pairs.
    """
    if schedule.instance.objective is Objective.MAKESPAN:
        return np.zeros(schedule.instance.devices, np.int64)
    least = _closed(begin_distances(schedule.instance, schedule.order))
    after = least - least[:, :1]  # from each device d, device e at the earliest; device 0 begins at 0
    before = least[:1] - least  # device d at the latest such that each device e can begin
    middle = (after.mean(axis=0) + before.mean(axis=1)) / 2
    begins = np.floor(middle - middle.min()).astype(np.int64)
    # Rounding may leave a difference one tick too small.
    return np.asarray((begins[:, None] + least).max(axis=0))


def _closed(least: Ints) -> Ints:
    """Return the least differences that follow from the given ones by chains of them (Floyd 1962)."""
    closed = least.copy()
    for k in range(len(closed)):
        closed = np.maximum(closed, closed[:, k, None] + closed[k])
    return closed
