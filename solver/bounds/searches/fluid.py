"""A destructive lower bound by linear programs that let the queues of a device progress in fractions.

If a schedule costs at most a target T, the progress of each device's queues satisfies linear inequalities.
They are the *fluid* relaxation of the problem, in which operations may be divided at will. An item of d ticks
(its cut time, `windows`) has progressed by e / d at a time when it has run for e ticks. The
progress X_q(t) of queue q at time t is the sum of these numbers over its items. The variables are X_q at the
times of a grid, for the queues q of one device, and the start s of the device's frame. Under the target T the
device runs within [s, s + T]; for `makespan` s is 0. Each method that adds rows proves them for all times, so
they also hold at the times of any grid.

The constraints of other devices enter through the windows alone. Rows between the progress of one device and
the progress of the next would make one large linear program of many small ones. In measurements with 8
devices those rows refuted further targets only within the last 0.1 % of the cost, where finer grids and
CP-SAT take over.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound, Progress, Proof, ignore
from tightpipe.params.budget import Budget
from tightpipe.params.proof import FluidParams
from tightpipe.params.solve_params import DEFAULTS

from ...queues import Queues, queues_of
from ...windows import Windows, shaved, windows_of, windows_where
from .destructive import Steps, destructive_bound
from .energetic_kernel import overload_of
from .linear import UNIT, Inequalities, is_infeasible

Term = tuple[int, int]


class FluidRows:
    """The inequalities of one device under a target.

    Parameters
    ----------
    queues
        The problem.
    windows
        Feasible windows of the target. All times count from the same origin as the times of the windows.
    device
        The device.
    step
        Ticks between two times of the grid. The grid covers the device's frame wherever the frame starts.
    """

    def __init__(self, queues: Queues, windows: Windows, device: int, step: int) -> None:
        self.queues, self.windows, self.device = queues, windows, device
        self.mine = list(queues.on(device))
        graph = windows.arrays.graph
        self.ticks: list[int] = graph.queues["duration"].tolist()  # of an item of each queue
        self.work, self.idle = int(graph.devices["work"][device]), int(windows.arrays.idle[device])
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
        """Return the index of the variable for the progress of queue `q` at the i-th time of the grid."""
        return self._first[q] + i

    @property
    def start(self) -> int:
        """The index of the variable for s, the start of the device's frame."""
        return len(self.mine) * len(self.times)

    def _add_variables(self) -> None:
        """Add the variables, with bounds on progress that follow from the windows.

        An operation has progressed most if it starts as early as it can, and least if it starts as late as it
        can. The bounds are rounded outwards.
        """
        arrays, windows = self.windows.arrays, self.windows
        for q in self.mine:
            items = slice(int(arrays.graph.first[q]), int(arrays.graph.first[q + 1]))
            least = self._ticks_done(windows.latest[items], self.ticks[q])
            most = self._ticks_done(windows.earliest[items], self.ticks[q])
            for a, b in zip(least, most, strict=True):
                whole = max(1, self.ticks[q])
                self.system.add_variable(a * UNIT // whole, -(-b * UNIT // whole))
        self.system.add_variable(self.soonest * UNIT, self.latest * UNIT)

    def _ticks_done(self, starts: np.ndarray[tuple[int], np.dtype[np.int64]], duration: int) -> list[int]:
        """Return the ticks done by each time; an item of no ticks counts as one from its start on."""
        done = np.clip(self.grid[:, None] - starts + (duration == 0), 0, max(1, duration))
        return done.sum(axis=1).tolist()  # type: ignore[no-any-return]

    def _busy(self, i: int, factor: int = 1) -> list[Term]:
        """Return terms whose sum is `factor` times the ticks that the device has worked by grid time `i`."""
        return [(first + i, factor * self.ticks[q]) for q, first in self._first.items()]

    def _add_rates(self) -> None:
        """Add the rows that say: between two grid times the device works no longer than they are apart."""
        for i in range(len(self.times) - 1):
            terms = self._busy(i) + self._busy(i + 1, -1)
            self.system.at_least(terms, self.times[i] - self.times[i + 1])

    def _add_idle_limit(self) -> None:
        """Add the rows that say: until t the device works at least min(work, t - s - idle).

        The device idles at most `idle` ticks within [s, s + E], E = work + idle, and has done all its work
        from s + E on. After that comes what a step takes after its operations, if anything. As a function of
        s the minimum is concave, and thus at least its chord over the window [a, b] of s. For t up to a + E,
        the second term of the minimum is the smaller one for every s in the window.
        """
        s, a, b, end = self.start, self.soonest, self.latest, self.work + self.idle
        for i, t in enumerate(self.times):
            if t <= a + end:
                self.system.at_least([*self._busy(i), (s, 1)], t - self.idle)
            elif t < b + end:
                slope = b + end - t
                self.system.at_least([*self._busy(i, b - a), (s, slope)], (b - a) * self.work + slope * a)

    def _add_start(self) -> None:
        """Add the rows that say: until t the device works at most max(0, t - s).

        As a function of s the maximum is convex, and thus at most its chord over the window [a, b] of s. For
        t from b on, the second term is the larger one for every s in the window. For t until a, no row is
        needed, as the windows allow no progress.
        """
        s, a, b = self.start, self.soonest, self.latest
        for i, t in enumerate(self.times):
            if t >= b:
                self.system.at_least([*self._busy(i, -1), (s, -1)], -t)
            elif t > a:
                self.system.at_least([*self._busy(i, a - b), (s, a - t)], (a - t) * b)

    def _add_memory(self) -> None:
        """Add the rows that say: progress times memory delta, summed over the queues, is within the limit.

        This sum is at most the memory that the device holds. An F under way counts in part, but holds all of
        its memory; a B or W under way counts as if it had freed a part, but has freed nothing yet.
        """
        limit = self.queues.instance.memory_limit(self.device)
        if limit is None:
            return
        deltas = [(q, self.queues.queues[q].delta) for q in self.mine]
        for i in range(len(self.times)):
            self.system.at_least([(self.progress(q, i), -delta) for q, delta in deltas if delta], -limit)

    def _add_precedences(self) -> None:
        """Add the rows X_r(t) <= X_q(t - c - m) for queues q and r of the device where r waits for q.

        The k-th item of r starts c or more ticks after the end of the k-th item of q, and m is the smaller of
        the durations d_q and d_r. Let u be the ticks from the start of the item of q until t, less c. Then at
        t the item of r has progressed by at most P_r = (u - d_q) / d_r, and at t - c - m the item of q has
        progressed by P_q = (u - m) / d_q, both cut to [0, 1]. Between u = d_q and u = d_q + d_r, P_r grows
        linearly from 0 to 1. If d_r < d_q, P_q grows linearly from 1 - d_r / d_q to 1 there; else P_q starts
        at 0 and grows at least as fast as P_r until it is 1. So P_r <= P_q, also where one of them jumps to 1
        at the start of an item of no ticks. As X_q grows with time, the next time of the grid may take the
        place of t - c - m.
        """
        for q, r, lag in self.queues.precedences():
            if q not in self.mine or r not in self.mine:
                continue
            for i in range(len(self.times)):
                self.system.at_least([(self._ahead(q, r, lag, i), 1), (self.progress(r, i), -1)], 0)

    def _add_pools(self) -> None:
        """Add the rows of `_add_precedences` for pools; the sum over the pool's B queues replaces X_q.

        The rows hold because each W of a pool waits for a B of its own.
        """
        for r in self.mine:
            queue = self.queues.queues[r]
            if queue.kind is OpKind.W and len(queue.members) > 1:
                for i in range(len(self.times)):
                    filled = [(self._ahead(q, r, 0, i), 1) for q in self.queues.backwards_of(r)]
                    self.system.at_least([*filled, (self.progress(r, i), -1)], 0)

    def _ahead(self, q: int, r: int, lag: int, i: int) -> int:
        """Return the index of the variable for q's progress that bounds r's progress at grid time `i`."""
        before = self.times[i] - lag - min(self.ticks[q], self.ticks[r])
        return self.progress(q, int(np.searchsorted(self.grid, before)))

    def _add_monotony(self) -> None:
        """Add the rows that say: the progress of a queue never shrinks with time."""
        for q in self.mine:
            for i in range(len(self.times) - 1):
                self.system.at_least([(self.progress(q, i + 1), 1), (self.progress(q, i), -1)], 0)


def fluid_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by targets that even fractional progress of a device's queues cannot meet.

    Parameters
    ----------
    instance
        A problem that has a schedule.
    upper
        The cost of a known schedule in ticks; no target is larger than upper - 1.
    budget
        The limits for all targets together; a search without a deadline ends after ten minutes.
    lower
        A proven bound of the cost in ticks; no target is smaller.
    progress
        Called with each better bound.

    Notes
    -----
    Every schedule of cost at most a target T lies inside the windows of T, and the progress of each device
    satisfies the inequalities of `FluidRows`. Where the inequalities of one device have no solution, every
    schedule costs at least T + 1. The multipliers that show this come from an interior point method and are
    checked in integers (`linear.is_infeasible`), so the proof needs no numerical tolerance. The proof holds
    for any grid, which is the set of times at which progress is a variable.

    The start of a device, relative to the other devices, may lie in a wide window, and then the inequalities
    are weak. So the search supposes that the device starts in a part of its window, and propagates what
    follows for the other devices. Where this supposition is refuted, the device starts in the rest of its
    window in every schedule of cost at most T.

    What slices, flushes, busy links and a step around the operations add, the windows know.
    """
    argument = "no fractional progress of the operations ends at a cost of {target} or less"
    params = budget.params.fluid
    refuter = Refuter(instance, params)
    steps = Steps(params.first, params.last, params.target)

    def refute(target: int, part: Budget) -> Proof | None:
        return Proof.FLUID if refuter.refuted(target, part) else None

    return destructive_bound("fluid", argument, refute, steps, instance, upper, budget, lower, progress)


class Refuter:
    """Refutes targets by windows or by linear programs, and remembers what helps to refute the next target.

    A grid is the set of times at which progress is a variable. The methods take as `grid` the distance
    between two of these times in hops. A hop is about the mean time from one stage to the next (`_hop`).

    - `instance`: a problem that has a schedule.
    - `params`: the grids, and how the time is shared.
    """

    def __init__(self, instance: Instance, params: FluidParams = DEFAULTS.fluid) -> None:
        self.queues, self.params = queues_of(instance), params
        self.hop = _hop(self.queues)
        # The device whose inequalities were the last to refute something comes first. At the beginning the
        # highest numbers come first, devices far from the anchor.
        self.devices = list(reversed(range(instance.devices)))
        self.open: Windows | None = None  # windows of the last open target; lower targets start from these
        self.passed: dict[float, int] = {}  # for each grid, the least target that it failed to refute

    def refuted(self, target: int, budget: Budget) -> bool:
        """Return whether it is proven, within a budget, that no schedule costs at most `target` ticks."""
        params = self.params
        windows = windows_of(self.queues, target, budget.part(params.windows), self.open)
        for k, grid in enumerate(params.grids):
            if not windows.feasible or self._refuted_by(self._witnesses, grid, windows, budget):
                return True
            windows = self.narrowed(windows, grid, budget)
            if k == 0:
                windows = shaved(windows, budget.part(params.shaving), params.thorough)
        if not windows.feasible or any(self._refuted_on(grid, windows, budget) for grid in params.grids):
            return True
        if any(self._refuted_by(self.devices[:1], grid, windows, budget) for grid in params.fine_grids):
            return True
        self.open = windows
        return False

    @property
    def _witnesses(self) -> list[int]:
        """The devices that are tried before all others."""
        return self.devices[: self.params.witnesses]

    def _refuted_on(self, grid: float, windows: Windows, budget: Budget) -> bool:
        """Return whether the inequalities of any device but the witnesses refute windows on a grid.

        A grid is not tried if it failed, though there was time, to refute a target no larger than this one.
        """
        if windows.horizon >= self.passed.get(grid, inf):
            return False
        if self._refuted_by(self.devices[self.params.witnesses :], grid, windows, budget):
            return True
        if budget.left > 0:
            self.passed[grid] = windows.horizon
        return False

    def narrowed(self, windows: Windows, grid: float, budget: Budget) -> Windows:
        """Return windows after cutting off ranges in which frames are proven not to start.

        Each step takes a frame whose start has the widest window, or nearly the widest one. The loop ends at
        the first frame for which it finds nothing to cut off.
        """
        while windows.feasible and budget.left > 0:
            device, before = self._widest(windows), _width(windows).sum()
            for late in (True, False):
                windows = self._cut(windows, device, grid, budget, late=late)
            if _width(windows).sum() == before:
                break
        return windows

    def _widest(self, windows: Windows) -> int:
        width = _width(windows)
        nearly = self.params.nearly_widest * width.max()
        return next(device for device in self.devices if width[device] >= nearly)

    def _cut(self, windows: Windows, device: int, grid: float, budget: Budget, *, late: bool) -> Windows:
        """Return windows after cutting off late, or early, starts of a device's frame where that is possible.

        The method supposes that the frame starts in a part of the window of its start. If this is refuted,
        the part is cut off; if not, a part of half the size is tried next.
        """
        share = 1 / 2
        while windows.feasible and share >= self.params.smallest_part and budget.left > 0:
            low, high = (int(frames[device]) for frames in windows.frames)
            if high - low < self.params.narrow * self.hop:
                break
            size = int(share * (high - low))
            first, second = (low, low + size), (high - size, high)
            part = windows_where(windows, device, *(second if late else first), budget)
            witnesses = {device, *self._witnesses}
            if not part.feasible or self._refuted_by(list(witnesses), grid, part, budget):
                rest = (low, high - size - 1) if late else (low + size + 1, high)
                windows, share = windows_where(windows, device, *rest, budget), 1 / 2
            else:
                share /= 2
        return windows

    def _refuted_by(self, devices: list[int], grid: float, windows: Windows, budget: Budget) -> bool:
        """Return whether the inequalities of one of these devices have no solution on a grid.

        The first such device moves to the front of `self.devices`.
        """
        with ThreadPoolExecutor(budget.threads) as pool:
            # HiGHS prepares each new thread, which may take longer than to solve the linear program
            mapped = pool.map if budget.threads > 1 else map
            for begin in range(0, len(devices), budget.threads):
                batch = devices[begin : begin + budget.threads]
                answers = mapped(lambda device: self._is_infeasible(device, grid, windows, budget), batch)
                for device, answer in zip(batch, list(answers), strict=True):
                    if answer:
                        self.devices.remove(device)
                        self.devices.insert(0, device)
                        return True
        return False

    def _is_infeasible(self, device: int, grid: float, windows: Windows, budget: Budget) -> bool:
        step = max(1, round(grid * self.hop))
        if budget.left <= 0:
            return False
        if overload_of(windows, device) > 0:
            return True
        if windows.horizon // step > self.params.most_times:
            return False
        return is_infeasible(FluidRows(self.queues, windows, device, step).system, budget)


def _width(windows: Windows) -> Ints:
    """Return how wide the window of each frame's start is, in ticks, shape (devices,)."""
    soonest, latest = windows.frames
    return latest - soonest


def _hop(queues: Queues) -> float:
    """Return the hop: about the mean ticks from the start of a microbatch's F or B to its next F or B."""
    instance, kinds = queues.instance, (OpKind.F, OpKind.B)
    work = sum(queue.count * queue.duration for queue in queues.queues if queue.kind in kinds)
    lags = sum(queues.queues[q].count * lag for q, _, lag in queues.precedences())
    return (work + lags) / (len(kinds) * instance.stages * instance.microbatches)
