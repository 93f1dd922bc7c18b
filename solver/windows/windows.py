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
from .propagate_kernel import propagate
from .queue_arrays import Net, net_of
from .window_state_kernel import COUNT, Box, clear, copy_of, meet, open_box, push_all

_SLICE = 20_000  # items between two looks at the time


@dataclass(frozen=True, slots=True)
class Windows:
    """What holds in every schedule of cost at most `horizon`.

    Parameters
    ----------
    horizon
        T, in ticks.
    net
        The queues; items are numbered queue after queue.
    feasible
        False when it is proven that no schedule has such a cost; the box means nothing then.
    box
        The windows, for the compiled rules.
    """

    horizon: int
    net: Net
    feasible: bool
    box: Box

    @property
    def earliest(self) -> Ints:
        """Least start of each item, shape (items,)."""
        return self.box.value[: len(self.net.queue)]

    @property
    def latest(self) -> Ints:
        """Largest start of each item, shape (items,)."""
        half = len(self.box.value) // 2
        return self.box.value[half : half + len(self.net.queue)]

    @property
    def floating(self) -> bool:
        """Whether every device has a frame of its own."""
        return self.net.anchor >= 0

    @property
    def frames(self) -> tuple[Ints, Ints]:
        """Least and largest start of each device's frame, shape (devices,) each."""
        devices, half = len(self.net.members), len(self.box.value) // 2
        return self.box.value[half - devices : half], self.box.value[2 * half - devices :]

    def from_frame(self) -> tuple[Ints, Ints]:
        """Return the least and largest distance of each item from its frame's start, shape (items,) each."""
        device = self.net.device[self.net.queue]
        early, late = (frame[device] for frame in self.frames)
        least, most = self.work_before()
        idle = self.net.idle[device]
        return np.maximum(self.earliest - late, least), np.minimum(self.latest - early, most + idle)

    def work_before(self) -> tuple[Ints, Ints]:
        """Return the least and most work of the device before each item, shape (items,) each."""
        queue = self.net.queue
        members = self.net.members[self.net.device[queue]]
        duration = np.where(members >= 0, self.net.duration[members], 0)
        own = self.net.duration[queue]
        return (self.before * duration).sum(axis=1), (self.after * duration).sum(axis=1) - own

    def origin(self, start: Sequence[int]) -> int:
        """Return the start of the anchor's frame in a schedule, from the start of each item."""
        if not self.floating:
            return min(start)
        on_anchor = self.net.device[self.net.queue] == self.net.anchor
        return int(np.asarray(start)[on_anchor].min())

    @property
    def before(self) -> Ints:
        """How many elements of each slot surely precede each item, shape (items, slots)."""
        return self._orders(0)

    @property
    def after(self) -> Ints:
        """The first element of each slot that surely follows each item, shape (items, slots)."""
        return self._orders(len(self.box.value) // 2)

    @property
    def undecided(self) -> int:
        """Number of pairs of items whose order is open."""
        return int((self.after - self.before).sum() - len(self.net.queue)) // 2

    def _orders(self, begin: int) -> Ints:
        items, slots = len(self.net.queue), self.net.members.shape[1]
        return self.box.value[begin + items : begin + items + items * slots].reshape(items, slots)


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
    net = net_of(queues, horizon)
    box = open_box(net, horizon)
    if wider is not None:
        meet(box, wider.box)
    feasible = bool(np.all(net.idle >= 0)) and settle(net, box, budget)
    return Windows(horizon, net, feasible, box)


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
    box = copy_of(windows.box)
    part = replace(windows, box=box)
    least, most = part.frames
    least[device] = max(least[device], soonest)
    most[device] = min(most[device], latest)
    return replace(part, feasible=settle(windows.net, box, budget))


def settle(net: Net, box: Box, budget: Budget = UNLIMITED) -> bool:
    """Propagate from every item until nothing more follows or time is up; False on a contradiction."""
    push_all(box)
    while box.state[COUNT] > 0 and budget.left > 0:
        if not propagate(net, box, _SLICE):
            return False
    clear(box)
    return True
