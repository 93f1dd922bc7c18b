"""A destructive lower bound by linear programs that let the queues of a device progress in fractions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.params.proof import FluidParams
from tightpipe.core.params.solve_params import DEFAULTS
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Bound, Proof
from tightpipe.kernels.arrays import Ints

from ...queues import Queues, queues_of
from ...windows import Windows, shaved, windows_of, windows_where
from .destructive import Steps, destructive_bound
from .energetic_kernel import overload_of
from .fluid_rows import FluidRows
from .infeasible import is_infeasible


def fluid_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by targets that even fractional progress of a device's queues cannot meet.

    Parameters
    ----------
    instance
        A problem that has a schedule, without operations that overlap and without flushes.
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
    satisfies the inequalities of `fluid_rows`. Where the inequalities of one device have no solution, every
    schedule costs at least T + 1. The multipliers that show this come from an interior point method and are
    checked in integers (`infeasible`), so the proof needs no numerical tolerance. The proof holds for any
    grid, which is the set of times at which progress is a variable.

    The start of a device, relative to the other devices, may lie in a wide window, and then the inequalities
    are weak. So the search supposes that the device starts in a part of its window, and propagates what
    follows for the other devices. Where this supposition is refuted, the device starts in the rest of its
    window in every schedule of cost at most T.

    Busy links only add constraints. Fused backwards are left out, as split ones are never worse (`queues`).
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

    Parameters
    ----------
    instance
        A problem that has a schedule.
    params
        The grids, and how the time is shared.
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
    instance = queues.instance
    stages = range(instance.stages)
    kinds = OpKind.F, OpKind.B
    work = sum(instance.duration(kind, s) for kind in kinds for s in stages)
    lags = sum(lag for _, _, lag in queues.precedences())
    return (work + lags) / (len(kinds) * instance.stages)
