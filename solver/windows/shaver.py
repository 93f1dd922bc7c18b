"""Shaving of windows on several threads, in sweeps that become more thorough."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.params.budget import Budget
from tightpipe.params.proof import WindowParams
from tightpipe.params.solve_params import DEFAULTS

from ..queues import Queues
from .propagate_kernel import shave
from .window_state_kernel import copy_of, meet
from .windows import Windows, are_crowded, settle, windows_of


class Shaver:
    """Narrows windows by shaving, in sweeps over the items; later sweeps may be more thorough.

    - `windows`: the windows, which are narrowed in place.
    - `threads`: the number of threads. Each shaves a copy of the windows for a while. Then the copies are
      intersected, which is correct because the windows of each copy hold.
    - `params`: how thorough the sweeps are, and how often they look at the time.
    - `feasible`: False as soon as the windows are contradictory, so that no schedule costs at most their
      horizon.
    - `steps`: the number of items that the propagation of one supposition may work on in the next sweep.
    - `exhausted`: shape (items,), true for items about which no supposition is refuted even by unlimited
      propagation. More steps say nothing new about such an item until a window changes, so sweeps pass it
      over.
    """

    def __init__(self, windows: Windows, threads: int = 1, params: WindowParams = DEFAULTS.windows) -> None:
        self.windows, self.threads, self.params = windows, threads, params
        self.feasible = windows.feasible
        self.steps = params.first_steps
        self._fruitful = np.ones(len(windows.arrays.graph.queue), np.bool_)
        self.exhausted = ~self._fruitful
        self._states = [windows.state, *(copy_of(windows.state) for _ in range(threads - 1))]

    def run(self, budget: Budget, thorough: int | None = None) -> bool | None:
        """Shave until the windows are contradictory, sweeps decide little, or time is up.

        No further sweep begins when all items are exhausted, or when a sweep that is as thorough as allowed
        has decided few orders. Return True if the windows are contradictory, None if time is up, False
        otherwise.

        - `budget`: its deadline is looked at after a number of items of each thread, the parameter `chunk`.
        - `thorough`: the most items that the propagation of one supposition may work on. No more thorough
          sweep begins. None for the parameter `last_steps`.
        """
        most = self.params.last_steps if thorough is None else thorough
        while self.feasible and self.steps <= most and not self.exhausted.all():
            open_before = self.windows.undecided
            if not self.sweep(budget):
                return None if self.feasible else True
            decided = open_before - self.windows.undecided
            if decided <= self.params.little * open_before:
                self.steps *= 2
                self._fruitful[:] = True
        return not self.feasible

    def sweep(self, budget: Budget) -> bool:
        """Shave every promising item once.

        An item is promising unless a sweep of the same thoroughness has decided none of its orders. Return
        True if the sweep came to its end and the windows may hold a schedule.
        """
        with ThreadPoolExecutor(self.threads) as pool:
            for parts in self._parts():
                if budget.left <= 0:
                    return False
                jobs = [
                    pool.submit(
                        shave, self.windows.arrays, state, part, self.steps, self._fruitful, self.exhausted
                    )
                    for state, part in zip(self._states, parts, strict=True)
                ]
                stand = [job.result() for job in jobs]
                if not all(stand) or not self._meet(budget):
                    self.feasible = False
                    return False
                if any(self._fruitful[part].any() for part in parts):
                    self.exhausted[:] = False
        return True

    def _parts(self) -> Iterator[list[Ints]]:
        """Yield lists of arrays of items, one array for each thread, that together hold the promising items.

        Late items come first, because windows are tightest in the cool-down.
        """
        order = np.argsort(-self.windows.earliest, kind="stable")
        order = order[self._fruitful[order]]
        size = self.params.chunk * self.threads
        for begin in range(0, len(order), size):
            chunk = order[begin : begin + size]
            # The loops are compiled for contiguous arrays only; an array with strides has another type.
            yield [np.ascontiguousarray(chunk[t :: self.threads]) for t in range(self.threads)]

    def _meet(self, budget: Budget) -> bool:
        """Set every copy to the intersection of all, after propagation; return False on a contradiction."""
        if self.threads == 1:
            return True
        first, *others = self._states
        for state in others:
            meet(first, state)
        if not settle(self.windows.arrays, first, budget):
            return False
        for state in others:
            state.value[:] = first.value
        return True


def shaved_windows(
    queues: Queues,
    horizon: int,
    budget: Budget,
    thorough: int | None = None,
    wider: Windows | None = None,
) -> Windows:
    """Return the windows under a horizon after propagation and shaving.

    - `queues`, `horizon`, `wider`: as in `windows_of`.
    - `budget`: its deadline ends the work. The windows hold even then.
    - `thorough`: as in `Shaver.run`; None for the parameter `windows.thorough`.

    Returns
    -------
    Windows
        Not feasible if it is proven that no schedule costs at most the horizon.
    """
    most = budget.params.windows.thorough if thorough is None else thorough
    return shaved(windows_of(queues, horizon, budget, wider), budget, most)


def shaved(windows: Windows, budget: Budget, thorough: int) -> Windows:
    """Shave windows in place, and return them; the other parameters are those of `shaved_windows`.

    Where a device has too many queues (`are_crowded`), the windows stay as they are.
    """
    if are_crowded(windows.arrays.graph, budget.params.windows):
        return windows
    shaver = Shaver(windows, budget.threads, budget.params.windows)
    shaver.run(budget, thorough)
    return replace(windows, feasible=shaver.feasible)
