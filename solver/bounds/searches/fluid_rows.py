"""What the progress of a device's queues satisfies in every schedule of cost at most a target: inequalities.

An operation that starts at s and takes d ticks has progressed at time t by (t - s) / d, cut to [0, 1]. The
progress X_q(t) of queue q is the sum over its operations. The variables are X_q at the times of a grid for
the queues of one device, and its start s, that of its first operation; with the target T it runs
within [s, s + T] (`makespan`: within [0, T]). Each function says why its rows hold; what holds at all
times holds at those of any grid.

What other devices impose enters by the windows alone. Rows that tie the progress of one device to that
of the next would make one large program of many small ones; they were measured to refute more only within
the last 0.1 % of the cost at 8 devices, where finer grids and CP-SAT take over.
"""

from __future__ import annotations

import numpy as np

from tightpipe.core.operation import OpKind

from ...queues import Queues
from ...windows import Windows
from .infeasible import UNIT, Inequalities

Term = tuple[int, int]


class FluidRows:
    """The inequalities of one device under a target.

    Parameters
    ----------
    queues
        The queues.
    windows
        Windows of the target that may hold a schedule; times count as in them.
    device
        The device.
    step
        Ticks between two times of the grid, which spans the device's frame wherever it starts.
    """

    def __init__(self, queues: Queues, windows: Windows, device: int, step: int) -> None:
        self.queues, self.windows, self.device = queues, windows, device
        self.mine = list(queues.on(device))
        self.soonest, self.latest = (int(frames[device]) for frames in windows.frames)
        end = self.latest + windows.horizon
        self.times = [*range(self.soonest, end, step), end]
        self.grid = np.array(self.times)
        self.system = Inequalities()
        self._add_variables()
        self._add_rates()
        self._add_idle_limit()
        self._add_start()
        self._add_memory()
        self._add_precedences()
        self._add_pools()
        self._add_monotony()

    def progress(self, q: int, i: int) -> int:
        """Return the variable of queue `q` of the device at grid time `i`."""
        return self.mine.index(q) * len(self.times) + i

    @property
    def start(self) -> int:
        """The variable of the device's start."""
        return len(self.mine) * len(self.times)

    def _add_variables(self) -> None:
        """Bound progress by the windows: an operation has progressed most if it starts as early as it can.

        Bounds are rounded away from the progress.
        """
        arrays, windows = self.windows.arrays, self.windows
        for q in self.mine:
            items = slice(int(arrays.first[q]), int(arrays.first[q + 1]))
            duration = self.queues.queues[q].duration
            least = self._ticks_done(windows.latest[items], duration)
            most = self._ticks_done(windows.earliest[items], duration)
            for a, b in zip(least, most, strict=True):
                self.system.add_variable(a * UNIT // duration, -(-b * UNIT // duration))
        self.system.add_variable(self.soonest * UNIT, self.latest * UNIT)

    def _ticks_done(self, starts: np.ndarray[tuple[int], np.dtype[np.int64]], duration: int) -> list[int]:
        done = np.clip(self.grid[:, None] - starts, 0, duration)
        return done.sum(axis=1).tolist()  # type: ignore[no-any-return]

    def _busy(self, i: int, factor: int = 1) -> list[Term]:
        """Return the terms of the ticks that the device has worked until grid time `i`."""
        return [(self.progress(q, i), factor * self.queues.queues[q].duration) for q in self.mine]

    def _add_rates(self) -> None:
        """Add: between two times the device works no longer than they are apart."""
        for i in range(len(self.times) - 1):
            terms = self._busy(i) + self._busy(i + 1, -1)
            self.system.at_least(terms, self.times[i] - self.times[i + 1])

    def _add_idle_limit(self) -> None:
        """Add: until t the device has worked at least min(work, t - s - idle), idle = T - work.

        It idles no more than that within [s, s + T], and has worked all its work from s + T on. As a
        function of s the minimum is concave, thus at least its chord over the window [a, b] of s; before
        a + T the second term is the smaller one throughout.
        """
        horizon, work = self.windows.horizon, self.queues.instance.work(self.device)
        s, a, b = self.start, self.soonest, self.latest
        for i, t in enumerate(self.times):
            if t <= a + horizon:
                self.system.at_least([*self._busy(i), (s, 1)], t - (horizon - work))
            elif t < b + horizon:
                slope = b + horizon - t
                self.system.at_least([*self._busy(i, b - a), (s, slope)], (b - a) * work + slope * a)

    def _add_start(self) -> None:
        """Add: until t the device has worked at most max(0, t - s).

        As a function of s this is convex, thus at most its chord over the window [a, b] of s; after b the
        second term is the larger one throughout, and before a the windows allow nothing.
        """
        s, a, b = self.start, self.soonest, self.latest
        for i, t in enumerate(self.times):
            if t >= b:
                self.system.at_least([*self._busy(i, -1), (s, -1)], -t)
            elif t > a:
                self.system.at_least([*self._busy(i, a - b), (s, a - t)], (a - t) * b)

    def _add_memory(self) -> None:
        """Add: the memory of the progress is within the limit.

        It is at most what is held: an F under way counts in part, and holds all of its memory; a B or W under
        way counts as if it had freed a part, and has freed nothing.
        """
        limit = self.queues.instance.memory_limit(self.device)
        if limit is None:
            return
        deltas = [(q, self.queues.queues[q].delta) for q in self.mine]
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
            if q not in self.mine or r not in self.mine:
                continue
            for i in range(len(self.times)):
                self.system.at_least([(self._ahead(q, r, lag, i), 1), (self.progress(r, i), -1)], 0)

    def _add_pools(self) -> None:
        """Add the same for the W's of several stages: each follows a B of its own."""
        for r in self.mine:
            queue = self.queues.queues[r]
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
        for q in self.mine:
            for i in range(len(self.times) - 1):
                self.system.at_least([(self.progress(q, i + 1), 1), (self.progress(q, i), -1)], 0)
