"""A destructive lower bound by linear programs: the largest target that no device's progress meets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Bound, Proof
from tightpipe.kernels.arrays import Ints

from ...queues import Queues, queues_of
from ...windows import Windows, shaved, windows_of, windows_where
from .destructive import Steps, destructive_bound
from .energetic_kernel import overload_of
from .fluid_rows import FluidRows
from .infeasible import is_infeasible

_STEPS = Steps(first=1 / 2, last=1 / 1024, share=0.4)
_GRIDS = (3.2, 0.8, 0.4)  # hops between two times: the coarse one refutes most, in a tenth of a second
_FINE_GRIDS = (0.2, 0.1, 0.05)  # seconds to a minute at 16 x 48, so for one device only
_MOST_TIMES = 10_000  # of a grid: minutes
_SHARE_OF_WINDOWS = 0.5  # of a target's time
_SHARE_OF_SHAVING = 0.1
_THOROUGH = 30  # deeper shaving takes longer than it brings here
_NARROW = 1 / 8  # hops: a frame that starts within so little is not split
_SMALLEST_PART = 1 / 8  # of a frame's window, that is tried before another device is
_WITNESSES = 2  # devices, those that refuted last, whose progress is looked at before that of all others


def fluid_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by targets T that even fractional progress of a device's queues cannot meet.

    Parameters
    ----------
    instance
        A problem that has a schedule, without overlapped operations or flushed iterations.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    budget
        For all targets together; a search without a deadline ends after ten minutes.
    lower
        A proven bound of the cost: no smaller target is asked.
    progress
        Called with each better bound.

    Notes
    -----
    Every schedule of cost at most T lies inside the windows of T, and the progress of each device
    satisfies the inequalities of `fluid_rows`. Where those of one device have no solution, every schedule
    costs at least T + 1; the multipliers that show it come from an interior point method and are checked in
    integers (`infeasible`), so that no tolerance enters. Any grid of times will do.

    When a device starts, relative to the others, is open within a wide window, and the inequalities are weak
    there. So a part of the window is supposed, with what follows for all others: where that is refuted, the
    device starts in the rest of it in every schedule of cost at most T.

    Busy links only add constraints, fused backwards are dominated (`queues`).
    """
    argument = "no fractional progress of the operations ends at a cost of {target} or less"
    refuter = Refuter(instance)

    def refute(target: int, part: Budget) -> Proof | None:
        return Proof.FLUID if refuter.refuted(target, part) else None

    return destructive_bound("fluid", argument, refute, _STEPS, instance, upper, budget, lower, progress)


class Refuter:
    """Refutes targets by windows, else by linear programs.

    Parameters
    ----------
    instance
        A problem that has a schedule.
    """

    def __init__(self, instance: Instance) -> None:
        self.queues = queues_of(instance)
        self.hop = _hop(self.queues)
        # the device that refuted last comes first; at the beginning those far from the anchor
        self.devices = list(reversed(range(instance.devices)))
        self.open: Windows | None = None  # of the last target that stayed open: lower ones start there
        self.passed: dict[float, int] = {}  # the least target that each grid did not refute, time left

    def refuted(self, target: int, budget: Budget) -> bool:
        """Whether it is proven, within a budget, that no schedule costs at most a target."""
        windows = windows_of(self.queues, target, budget.part(_SHARE_OF_WINDOWS), self.open)
        for grid in _GRIDS:
            if not windows.feasible or self._refuted_by(self.devices[:_WITNESSES], grid, windows, budget):
                return True
            windows = self.narrowed(windows, grid, budget)
            if grid == _GRIDS[0]:
                windows = shaved(windows, budget.part(_SHARE_OF_SHAVING), _THOROUGH)
        if not windows.feasible or any(self._refuted_on(grid, windows, budget) for grid in _GRIDS):
            return True
        if any(self._refuted_by(self.devices[:1], grid, windows, budget) for grid in _FINE_GRIDS):
            return True
        self.open = windows
        return False

    def _refuted_on(self, grid: float, windows: Windows, budget: Budget) -> bool:
        """Whether any other device refutes windows on a grid, where no smaller target has passed it."""
        if windows.horizon >= self.passed.get(grid, inf):
            return False
        if self._refuted_by(self.devices[_WITNESSES:], grid, windows, budget):
            return True
        if budget.left > 0:
            self.passed[grid] = windows.horizon
        return False

    def narrowed(self, windows: Windows, grid: float, budget: Budget) -> Windows:
        """Cut off parts of frames' windows, of the widest one first, until one has no part to cut off."""
        while windows.feasible and budget.left > 0:
            device, before = self._widest(windows), _width(windows).sum()
            for late in (True, False):
                windows = self._cut(windows, device, grid, budget, late=late)
            if _width(windows).sum() == before:
                break
        return windows

    def _widest(self, windows: Windows) -> int:
        width = _width(windows)
        return next(device for device in self.devices if width[device] >= 0.9 * width.max())

    def _cut(self, windows: Windows, device: int, grid: float, budget: Budget, *, late: bool) -> Windows:
        """Cut off late or early starts of a device's frame as long as a part of them is refuted."""
        share = 1 / 2
        while windows.feasible and share >= _SMALLEST_PART and budget.left > 0:
            low, high = (int(frames[device]) for frames in windows.frames)
            if high - low < _NARROW * self.hop:
                break
            size = int(share * (high - low))
            first, second = (low, low + size), (high - size, high)
            part = windows_where(windows, device, *(second if late else first), budget)
            witnesses = {device, *self.devices[:_WITNESSES]}
            if not part.feasible or self._refuted_by(list(witnesses), grid, part, budget):
                rest = (low, high - size - 1) if late else (low + size + 1, high)
                windows, share = windows_where(windows, device, *rest, budget), 1 / 2
            else:
                share /= 2
        return windows

    def _refuted_by(self, devices: list[int], grid: float, windows: Windows, budget: Budget) -> bool:
        """Whether the progress of one of these devices has no solution."""
        with ThreadPoolExecutor(budget.threads) as pool:
            for begin in range(0, len(devices), budget.threads):
                batch = devices[begin : begin + budget.threads]
                answers = pool.map(lambda device: self._is_infeasible(device, grid, windows, budget), batch)
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
        if overload_of(self.queues, windows, device) > 0:
            return True
        if windows.horizon // step > _MOST_TIMES:
            return False
        return is_infeasible(FluidRows(self.queues, windows, device, step).system, budget)


def _width(windows: Windows) -> Ints:
    """Return the width of the window of each frame's start, in ticks."""
    soonest, latest = windows.frames
    return latest - soonest


def _hop(queues: Queues) -> float:
    """Return the mean time from the start of an F or B to that of the next stage's."""
    instance = queues.instance
    stages = range(instance.stages)
    kinds = OpKind.F, OpKind.B
    work = sum(instance.duration(kind, s) for kind in kinds for s in stages)
    lags = sum(lag for _, _, lag in queues.precedences())
    return (work + lags) / (len(kinds) * instance.stages)
