"""Times at which devices begin, chosen so that words have their least cost and annealing has room to move.

Under `device_span` a device may begin later than it could, and usually many choices of these times give the
words their least cost. Annealing keeps the chosen times for many moves. If every device began as early as
possible, most devices would run just in time for another device. Then a small delay on one device would raise
the cost of another one. Times in the middle of the possible range leave slack on both sides.
"""

from __future__ import annotations

import numpy as np

from tightpipe.core.retime import begin_distances
from tightpipe.core.schedule import Schedule
from tightpipe.kernels.arrays import Ints


def central_begins(schedule: Schedule) -> Ints:
    """Return the tick before which each device must not begin, at least 0, shape (p,).

    With these times the words of the schedule have their least cost. For `device_span` the result is the
    rounded mean of 2p choices: for each device in turn, all other devices begin as early, or as late,
    relative to this device as the least cost allows. For `makespan` and `step` all times are 0.
    """
    if schedule.instance.whole:
        return np.zeros(schedule.instance.devices, np.int64)
    least = _closed(begin_distances(schedule.instance, schedule.order))
    after = least - least[:, :1]  # row d: all begin as early as possible relative to d; device 0 at 0
    before = least[:1] - least  # column e: as late as possible relative to e; device 0 at 0
    middle = (after.mean(axis=0) + before.mean(axis=1)) / 2
    begins = np.floor(middle - middle.min()).astype(np.int64)
    # Rounding may leave a difference one tick too small, so devices begin later where that is needed.
    return np.asarray((begins[:, None] + least).max(axis=0))


def _closed(least: Ints) -> Ints:
    """Return the least differences between devices that chains of the given ones imply (Floyd 1962)."""
    closed = least.copy()
    for k in range(len(closed)):
        closed = np.maximum(closed, closed[:, k, None] + closed[k])
    return closed
