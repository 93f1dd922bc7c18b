"""The inequalities that the progress of a device's queues satisfies in every schedule of at most a target.

They make up the *fluid* relaxation of the problem, in which operations may be divided at will. An operation
that starts at s and takes d ticks has progressed at time t by (t - s) / d, cut to [0, 1]. The progress X_q(t)
of queue q is the sum of that over its operations. The variables are X_q at the times of a grid, for the
queues q of one device, and the start s of the device's first operation. Under the target T the device runs
within [s, s + T], for `makespan` within [0, T]. Each function says why its rows hold. What holds at all times
holds at the times of any grid.

What other devices impose enters by the windows alone. Rows that tie the progress of one device to that of the
next would make one large program of many small ones. They were measured to refute more only within the last
0.1 % of the cost at 8 devices, where finer grids and CP-SAT take over.
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
        The problem.
    windows
        Feasible windows of the target. Times count as in these windows.
    device
        The device.
    step
        Ticks between two times of the grid. The grid covers the device's frame wherever that starts.
    """

    def __init__(self, queues: Queues, windows: Windows, device: int, step: int) -> None:
        self.queues, self.windows, self.device = queues, windows, device
        self.mine = list(queues.on(device))
        self.soonest, self.latest = (int(frames[device]) for frames in windows.frames)
        end = self.latest + windows.horizon
        self.times = [*range(self.soonest, end, step), end]
        self.grid = np.array(self.times)
        self._first = {q: k * len(self.times) for k, q in enumerate(self.mine)}
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
        return self._first[q] + i

    @property
    def start(self) -> int:
        """The variable of the device's start."""
        return len(self.mine) * len(self.times)

    def _add_variables(self) -> None:
        """Add the variables, with bounds on progress that follow from the windows.

        An operation has progressed most if it starts as early as it can, and least if it starts as late as it
        can. The bounds are rounded outwards.
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
        return [(first + i, factor * self.queues.queues[q].duration) for q, first in self._first.items()]

    def _add_rates(self) -> None:
        """Add the rows that say: between two times the device works no longer than they are apart."""
        for i in range(len(self.times) - 1):
            terms = self._busy(i) + self._busy(i + 1, -1)
            self.system.at_least(terms, self.times[i] - self.times[i + 1])

    def _add_idle_limit(self) -> None:
        """Add the rows that say: until t the device works at least min(work, t - s - idle), idle = T - work.

        The device idles no more than that within [s, s + T], and has done all its work from s + T on. As a
        function of s the minimum is concave, and thus at least its chord over the window [a, b] of s. For t
        before a + T the second term is the smaller one throughout.
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
        """Add the rows that say: until t the device works at most max(0, t - s).

        As a function of s this is convex, and thus at most its chord over the window [a, b] of s. For t after
        b the second term is the larger one throughout, and before a the windows allow no progress.
        """
        s, a, b = self.start, self.soonest, self.latest
        for i, t in enumerate(self.times):
            if t >= b:
                self.system.at_least([*self._busy(i, -1), (s, -1)], -t)
            elif t > a:
                self.system.at_least([*self._busy(i, a - b), (s, a - t)], (a - t) * b)

    def _add_memory(self) -> None:
        """Add the rows that say: the memory of the progress is within the limit.

        The memory of the progress is at most what the device holds. An F under way counts in part, and holds
        all of its memory; a B or W under way counts as if it had freed a part, and has freed nothing.
        """
        limit = self.queues.instance.memory_limit(self.device)
        if limit is None:
            return
        deltas = [(q, self.queues.queues[q].delta) for q in self.mine]
        for i in range(len(self.times)):
            self.system.at_least([(self.progress(q, i), -delta) for q, delta in deltas if delta], -limit)

    def _add_precedences(self) -> None:
        """Add the rows X_r(t) <= X_q(t - c - m) for each queue r whose elements wait for those of a queue q.

        The k-th element of r starts c or more ticks after the end of the k-th element of q, and m is the
        smaller of the durations d_q and d_r. Let u be the time since the start of the element of q, less c.
        Then the element of r has progressed by at most (u - d_q) / d_r, cut to [0, 1], and the element of q
        has progressed at t - c - m by (u - m) / d_q, cut too. Between u = d_q and u = d_q + d_r the first
        grows from 0 to 1 in a line. If d_r is smaller, the second grows in a line from 1 - d_r / d_q to 1;
        else it starts at 0 and grows at least as fast until it is 1. So the element of q is ahead. As X_q
        grows with time, it may be taken at a later time, which is one of the grid.
        """
        for q, r, lag in self.queues.precedences():
            if q not in self.mine or r not in self.mine:
                continue
            for i in range(len(self.times)):
                self.system.at_least([(self._ahead(q, r, lag, i), 1), (self.progress(r, i), -1)], 0)

    def _add_pools(self) -> None:
        """Add the rows of `_add_precedences` for pools, each W of which follows a B of its own."""
        for r in self.mine:
            queue = self.queues.queues[r]
            if queue.kind is OpKind.W and len(queue.members) > 1:
                for i in range(len(self.times)):
                    filled = [(self._ahead(q, r, 0, i), 1) for q in self.queues.backwards_of(r)]
                    self.system.at_least([*filled, (self.progress(r, i), -1)], 0)

    def _ahead(self, q: int, r: int, lag: int, i: int) -> int:
        """Return the variable of the progress of `q` that bounds the progress of `r` at grid time `i`."""
        queues = self.queues.queues
        before = self.times[i] - lag - min(queues[q].duration, queues[r].duration)
        return self.progress(q, int(np.searchsorted(self.grid, before)))

    def _add_monotony(self) -> None:
        """Add the rows that say: progress does not shrink."""
        for q in self.mine:
            for i in range(len(self.times) - 1):
                self.system.at_least([(self.progress(q, i + 1), 1), (self.progress(q, i), -1)], 0)
