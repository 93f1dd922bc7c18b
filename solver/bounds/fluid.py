"""A destructive lower bound by a linear program: the largest target that no fractional progress meets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import inf

from tightpipe.instance import Instance
from tightpipe.options import Options

from ..clock import Clock
from ..queues import queues_of
from ..windows import Shaver, Windows, windows_of
from .bound import Bound
from .destructive import Steps, destructive_bound
from .fluid_grid import COARSE, GRIDS, Grid
from .fluid_rows import FluidRows
from .infeasible import is_infeasible

_STEPS = Steps(first=1 / 2, last=1 / 256, share=0.4)
_MOST_VARIABLES = 100_000
_SHARE_OF_A_START = 0.1  # of a target's time: shaving that suffices for small instances and low targets
_SHARE_OF_WINDOWS = 0.5
_THOROUGH = 30  # deeper shaving takes longer than it brings here


def fluid_bound(instance: Instance, upper: int, options: Options, lower: int = 0) -> Bound:
    """Bound the cost by targets T that even fractional progress of the queues cannot meet.

    Parameters
    ----------
    instance
        A problem that has a schedule, without overlapped operations or flushed iterations.
    upper
        The cost of a known schedule: no target needs to be larger than upper - 1.
    options
        Time limit (10 minutes when None), threads, progress.
    lower
        A proven bound of the cost: no smaller target is asked.

    Notes
    -----
    Every schedule of cost at most T lies inside the windows of T, and its progress satisfies the
    inequalities of `fluid_rows`. Where these have no solution, every schedule costs at least T + 1; the
    multipliers that show it come from an interior point method and are checked in integers
    (`infeasible`), so that no tolerance enters. Any grid of times will do, and which one does depends on
    the target: several are tried, the one that did last first, but none that a smaller target has passed.
    Busy links only add constraints, fused backwards are dominated (`queues`).
    """
    argument = "no fractional progress of the operations ends at a cost of {target} or less"
    refuter = _Refuter(instance, options.threads)
    return destructive_bound("fluid", argument, refuter.refuted, _STEPS, instance, upper, options, lower)


class _Refuter:
    """Refutes targets by windows, else by linear programs: as many at a time as there are threads."""

    def __init__(self, instance: Instance, threads: int) -> None:
        self.queues, self.threads = queues_of(instance), threads
        self.grids = list(GRIDS)
        self.open: Windows | None = None  # of the last target that stayed open: lower ones start there
        self.passed: dict[Grid, int] = {}  # the least target that each did not refute, time left

    def refuted(self, target: int, clock: Clock) -> bool:
        windows = windows_of(self.queues, target, clock.part(_SHARE_OF_WINDOWS), self.open)
        shaver = Shaver(windows, self.threads)
        shaver.run(clock.part(_SHARE_OF_A_START), _THOROUGH)
        if not shaver.feasible or any(self._refuted_on(grid, windows, clock) for grid in COARSE):
            return True
        shaver.run(clock.part(_SHARE_OF_WINDOWS), _THOROUGH)
        if not shaver.feasible or self._refuted_on_any(windows, clock):
            return True
        self.open = windows
        return False

    def _refuted_on_any(self, windows: Windows, clock: Clock) -> bool:
        with ThreadPoolExecutor(self.threads) as pool:
            for begin in range(0, len(GRIDS), self.threads):
                batch = self.grids[begin : begin + self.threads]
                answers = list(pool.map(lambda grid: self._refuted_on(grid, windows, clock), batch))
                for grid, answer in zip(batch, answers, strict=True):
                    if answer:
                        self.grids.remove(grid)
                        self.grids.insert(0, grid)
                        return True
        return False

    def _refuted_on(self, grid: Grid, windows: Windows, clock: Clock) -> bool:
        target, times = windows.horizon, grid.times(self.queues, windows)
        if target >= self.passed.get(grid, inf) or len(times) * len(self.queues.queues) > _MOST_VARIABLES:
            return False
        refuted = is_infeasible(FluidRows(self.queues, windows, times).system, clock)
        if not refuted and clock.left > 0:
            self.passed[grid] = target
        return refuted
