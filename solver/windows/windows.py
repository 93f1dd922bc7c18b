"""Windows of start times and orders that hold in every schedule of cost at most a horizon.

A *frame* is the interval of length T in which the operations of a device lie: one per device for
`device_span`, one for all for `makespan`. Times count from the start of the anchor's frame (the device
where route 0 begins); the frames of other devices float, within what follows for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tightpipe.core.budget import UNLIMITED, Budget
from tightpipe.kernels.arrays import Ints

from ..queues import Queues
from .agenda_kernel import clear, push_all
from .propagate_kernel import propagate
from .queue_arrays import QueueArrays, arrays_of
from .window_state_kernel import LENGTH, WindowState, copy_of, meet, open_state

_SLICE = 20_000  # items between two looks at the time


@dataclass(frozen=True, slots=True)
class Windows:
    """What holds in every schedule of cost at most `horizon`.

    Parameters
    ----------
    horizon
        T, in ticks.
    arrays
        The queues; items are numbered queue after queue.
    feasible
        False when it is proven that no schedule has such a cost; the state means nothing then.
    state
        The windows, for the compiled rules.
    """

    horizon: int
    arrays: QueueArrays
    feasible: bool
    state: WindowState

    @property
    def earliest(self) -> Ints:
        """Least start of each item, shape (items,)."""
        return self.state.earliest

    @property
    def latest(self) -> Ints:
        """Largest start of each item, shape (items,)."""
        return self.state.latest

    @property
    def floating(self) -> bool:
        """Whether every device has a frame of its own."""
        return self.arrays.anchor >= 0

    @property
    def frames(self) -> tuple[Ints, Ints]:
        """Least and largest start of each device's frame, shape (devices,) each."""
        return self.state.frame_earliest, self.state.frame_latest

    def from_frame(self) -> tuple[Ints, Ints]:
        """Return the least and largest distance of each item from its frame's start, shape (items,) each."""
        device = self.arrays.device[self.arrays.queue]
        early, late = (frame[device] for frame in self.frames)
        least, most = self.work_before()
        idle = self.arrays.idle[device]
        return np.maximum(self.earliest - late, least), np.minimum(self.latest - early, most + idle)

    def work_before(self) -> tuple[Ints, Ints]:
        """Return the least and most work of the device before each item, shape (items,) each."""
        queue = self.arrays.queue
        on_device = self.arrays.on[self.arrays.device[queue]]
        duration = np.where(on_device >= 0, self.arrays.duration[on_device], 0)
        own = self.arrays.duration[queue]
        return (self.before * duration).sum(axis=1), (self.after * duration).sum(axis=1) - own

    def origin(self, start: Sequence[int]) -> int:
        """Return the start of the anchor's frame in a schedule, from the start of each item."""
        if not self.floating:
            return min(start)
        on_anchor = self.arrays.device[self.arrays.queue] == self.arrays.anchor
        return int(np.asarray(start)[on_anchor].min())

    @property
    def before(self) -> Ints:
        """How many elements of each queue of its device surely precede each item, shape (items, queues)."""
        return self.state.before

    @property
    def after(self) -> Ints:
        """The first element of each queue of its device that surely follows each item, as `before`."""
        return self.state.after

    @property
    def undecided(self) -> int:
        """Number of pairs of items whose order is open."""
        return int((self.after - self.before).sum() - len(self.arrays.queue)) // 2


def windows_of(
    queues: Queues, horizon: int, budget: Budget = UNLIMITED, wider: Windows | None = None
) -> Windows:
    """Propagate the rules of the model under ``cost <= horizon`` until nothing more follows or time is up.

    Parameters
    ----------
    budget
        Its deadline ends the work; windows hold whenever it ends.
    wider
        Feasible windows of these queues under a horizon that is no shorter: a start that saves most of the
        work. A frame lies in the longer one that starts with it, so what holds there holds here.
    """
    arrays = arrays_of(queues, horizon)
    state = open_state(arrays, horizon)
    if wider is not None:
        meet(state, wider.state)
    feasible = bool(np.all(arrays.idle >= 0)) and settle(arrays, state, budget)
    return Windows(horizon, arrays, feasible, state)


def windows_where(
    windows: Windows, device: int, soonest: int, latest: int, budget: Budget = UNLIMITED
) -> Windows:
    """Return what follows where the frame of `device` starts within a range.

    Parameters
    ----------
    windows
        Windows that may hold a schedule; they stay as they are.
    soonest, latest
        Start of the device's frame, in ticks.
    budget
        As for `windows_of`.
    """
    part = replace(windows, state=copy_of(windows.state))
    least, most = part.frames
    least[device] = max(least[device], soonest)
    most[device] = min(most[device], latest)
    return replace(part, feasible=settle(part.arrays, part.state, budget))


def settle(arrays: QueueArrays, state: WindowState, budget: Budget = UNLIMITED) -> bool:
    """Propagate from every item until nothing more follows or time is up; False on a contradiction."""
    push_all(state)
    while state.counter[LENGTH] > 0 and budget.left > 0:
        if not propagate(arrays, state, _SLICE):
            return False
    clear(state)
    return True
