"""What the progress of the queues satisfies in every schedule of cost at most a target: linear inequalities.

An operation that starts at s and takes d ticks has progressed at time t by (t - s) / d, cut to [0, 1]. The
progress X_q(t) of queue q is the sum over its operations. The variables are X_q at the times of a grid, and
the start s_d of each device, that of its first operation; with the target T the device runs
within [s_d, s_d + T] (`makespan`: within [0, T]). Each function says why its rows hold; what holds at all
times holds at those of any grid.
"""

from __future__ import annotations

import numpy as np

from tightpipe.operation import OpKind

from ..queues import Queues
from ..windows import Windows
from .infeasible import UNIT, Inequalities

Term = tuple[int, int]


class FluidRows:
    """The inequalities of an instance under a target.

    Parameters
    ----------
    queues
        The queues.
    windows
        Windows of the target that may hold a schedule; times count as in them.
    times
        The grid, rising, from the start of the first frame to the end of the last or beyond.
    """

    def __init__(self, queues: Queues, windows: Windows, times: list[int]) -> None:
        self.queues, self.windows = queues, windows
        self.devices = range(queues.instance.devices)
        self.soonest: list[int] = windows.frames[0].tolist()
        self.latest: list[int] = windows.frames[1].tolist()
        self.times = times
        self.grid = np.array(self.times)
        self.system = Inequalities()
        self._add_variables()
        for d in self.devices:
            self._add_rates(d)
            self._add_idle_limit(d)
            self._add_start(d)
            self._add_memory(d)
        self._add_precedences()
        self._add_pools()
        self._add_monotony()

    def progress(self, q: int, i: int) -> int:
        """Return the variable of queue `q` at grid time `i`."""
        return q * len(self.times) + i

    def start(self, device: int) -> int:
        """Return the variable of the start of `device`."""
        return len(self.queues.queues) * len(self.times) + device

    def _add_variables(self) -> None:
        """Bound progress by the windows: an operation has progressed most if it starts as early as it can.

        Bounds are rounded away from the progress.
        """
        net, windows = self.windows.net, self.windows
        for q, queue in enumerate(self.queues.queues):
            items = slice(int(net.first[q]), int(net.first[q + 1]))
            least = self._ticks_done(windows.latest[items], queue.duration)
            most = self._ticks_done(windows.earliest[items], queue.duration)
            for a, b in zip(least, most, strict=True):
                self.system.add_variable(a * UNIT // queue.duration, -(-b * UNIT // queue.duration))
        for a, b in zip(self.soonest, self.latest, strict=True):
            self.system.add_variable(a * UNIT, b * UNIT)

    def _ticks_done(self, starts: np.ndarray[tuple[int], np.dtype[np.int64]], duration: int) -> list[int]:
        done = np.clip(self.grid[:, None] - starts, 0, duration)
        return done.sum(axis=1).tolist()  # type: ignore[no-any-return]

    def _busy(self, device: int, i: int, factor: int = 1) -> list[Term]:
        """Return the terms of the ticks that `device` has worked until grid time `i`."""
        queues = self.queues
        return [(self.progress(q, i), factor * queues.queues[q].duration) for q in queues.on(device)]

    def _add_rates(self, device: int) -> None:
        """Add: between two times a device works no longer than they are apart."""
        for i in range(len(self.times) - 1):
            terms = self._busy(device, i) + self._busy(device, i + 1, -1)
            self.system.at_least(terms, self.times[i] - self.times[i + 1])

    def _add_idle_limit(self, device: int) -> None:
        """Add: until t the device has worked at least min(work, t - s_d - idle), idle = T - work.

        It idles no more than that within [s_d, s_d + T], and has worked all its work from s_d + T on. As a
        function of s_d the minimum is concave, thus at least its chord over the window [a, b] of s_d; before
        a + T the second term is the smaller one throughout.
        """
        horizon, work = self.windows.horizon, self.queues.instance.work(device)
        s, a, b = self.start(device), self.soonest[device], self.latest[device]
        for i, t in enumerate(self.times):
            if t <= a + horizon:
                self.system.at_least([*self._busy(device, i), (s, 1)], t - (horizon - work))
            elif t < b + horizon:
                slope = b + horizon - t
                self.system.at_least([*self._busy(device, i, b - a), (s, slope)], (b - a) * work + slope * a)

    def _add_start(self, device: int) -> None:
        """Add: until t the device has worked at most max(0, t - s_d).

        As a function of s_d this is convex, thus at most its chord over the window [a, b] of s_d; after b the
        second term is the larger one throughout, and before a the windows allow nothing.
        """
        s, a, b = self.start(device), self.soonest[device], self.latest[device]
        for i, t in enumerate(self.times):
            if t >= b:
                self.system.at_least([*self._busy(device, i, -1), (s, -1)], -t)
            elif t > a:
                self.system.at_least([*self._busy(device, i, a - b), (s, a - t)], (a - t) * b)

    def _add_memory(self, device: int) -> None:
        """Add: the memory of the progress is within the limit.

        It is at most what is held: an F under way counts in part, and holds all of its memory; a B or W under
        way counts as if it had freed a part, and has freed nothing.
        """
        limit = self.queues.instance.memory_limit(device)
        if limit is None:
            return
        deltas = [(q, self.queues.queues[q].delta) for q in self.queues.on(device)]
        for i in range(len(self.times)):
            self.system.at_least([(self.progress(q, i), -delta) for q, delta in deltas if delta], -limit)

    def _add_precedences(self) -> None:
        """Add: where the k-th of r starts c or more after the end of the k-th of q, X_r(t) <= X_q(t - c - m).

        Here m is the smaller of the durations d_q and d_r. Let u be the time since the q starts, less c. The
        r has progressed by at most (u - d_q) / d_r, cut to [0, 1], and the q at t - c - m by (u - m) / d_q,
        cut too. Between u = d_q and u = d_q + d_r the first grows from 0 to 1 in a line. If d_r is smaller,
        the second grows in a line from 1 - d_r / d_q to 1; else it starts at 0 and grows at least as fast
        until it is 1. So the q is ahead; as X_q grows, it may be taken at a later time, that of the grid.
        """
        for q, r, lag in self.queues.precedences():
            for i in range(len(self.times)):
                self.system.at_least([(self._ahead(q, r, lag, i), 1), (self.progress(r, i), -1)], 0)

    def _add_pools(self) -> None:
        """Add the same for the W's of several stages: each follows a B of its own."""
        for r, queue in enumerate(self.queues.queues):
            if queue.kind is OpKind.W and len(queue.members) > 1:
                for i in range(len(self.times)):
                    filled = [(self._ahead(q, r, 0, i), 1) for q in self.queues.backwards_of(r)]
                    self.system.at_least([*filled, (self.progress(r, i), -1)], 0)

    def _ahead(self, q: int, r: int, lag: int, i: int) -> int:
        """Return the progress of `q` that bounds that of `r` at grid time `i`."""
        queues = self.queues.queues
        before = self.times[i] - lag - min(queues[q].duration, queues[r].duration)
        return self.progress(q, int(np.searchsorted(self.grid, before)))

    def _add_monotony(self) -> None:
        """Add: progress does not shrink."""
        for q in range(len(self.queues.queues)):
            for i in range(len(self.times) - 1):
                self.system.at_least([(self.progress(q, i + 1), 1), (self.progress(q, i), -1)], 0)
