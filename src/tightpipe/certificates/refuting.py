"""Search for a proof that no schedule costs at most a target: windows, suppositions, and branches.

The compiled rules of `solver.windows` say which visits of items narrow something and which suppositions fail.
Only those are repeated in the language of the checker, which takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..core.budget import Budget
from ..core.instance import Instance
from ..solver.bounds.searches.energetic_kernel import overload_of
from ..solver.queues import queues_of
from ..solver.windows import Windows
from ..solver.windows.agenda_kernel import clear, push_all
from ..solver.windows.decide_kernel import exclude, suppose
from ..solver.windows.propagate_kernel import propagate
from ..solver.windows.queue_arrays import arrays_of
from ..solver.windows.window_state_kernel import (
    HEAD,
    LENGTH,
    RECORDED,
    RECORDING,
    WindowState,
    copy_of,
    open_state,
    undo,
)
from .check_proof import Problem, RefutedError
from .derivation import Derivation, Step
from .overloads import overload_step

Side = tuple[int, int, bool]  # an item, a queue among those of its device, and whether its open items follow
_DEPTHS = (30, 240, 2**14)  # items that the propagation of one supposition may work on, sweep by sweep


class UnprovenError(Exception):
    """No proof was found within the budget."""


class Refuter:
    """Searches for steps that lead from a target to a contradiction.

    Parameters
    ----------
    instance, problem
        A problem without operations that overlap and without busy links, here and as the checker reads it.
    target
        The cost to refute, in ticks.
    budget
        Its deadline ends the search.
    """

    def __init__(self, instance: Instance, problem: Problem, target: int, budget: Budget) -> None:
        self.budget, self.target = budget, target
        self.queues, self.instance, self.problem = queues_of(instance), instance, problem
        self.anchor = instance.placement.routes[0][0]
        self.arrays = arrays_of(self.queues, target)
        self.state = open_state(self.arrays, target)

    def steps(self) -> list[Step]:
        """Return steps that lead to a contradiction, not trimmed.

        Raises
        ------
        UnprovenError
            If none are found before the deadline.
        """
        try:
            self.derivation = Derivation(self.problem, self.target, self.anchor)
        except RefutedError:
            return []
        try:
            push_all(self.state)
            self._refute(self.state)
        except RefutedError:
            return self.derivation.steps
        raise UnprovenError

    def _refute(self, state: WindowState) -> None:
        """Raise `RefutedError` once a proof is recorded that no schedule lies in a state."""
        self._settle(state)
        while True:
            self._overload(state)
            if not any(self._shave(state, depth) for depth in _DEPTHS):
                self._branch(state)

    def _settle(self, state: WindowState) -> None:
        """Apply the rules to all items on the agenda."""
        possible, state.counter[RECORDING] = True, 1
        while state.counter[LENGTH] > 0 and possible:
            item = int(state.agenda[state.counter[HEAD]])
            state.counter[RECORDED] = 0
            possible = propagate(self.arrays, state, 1)
            if state.counter[RECORDED] > 0 or not possible:
                self.derivation.visit(item)
        state.counter[RECORDED] = state.counter[RECORDING] = 0
        if not possible:
            raise UnprovenError  # the compiled rules know something that the steps do not say

    def _overload(self, state: WindowState) -> None:
        windows = Windows(self.target, self.arrays, True, state)
        for device in reversed(range(self.instance.devices)):
            if overload_of(self.queues, windows, device) > 0:
                step = overload_step(self.derivation, device)
                if step is not None:
                    self.derivation.try_step(step)

    def _shave(self, state: WindowState, depth: int) -> bool:
        """Refute suppositions about every open order; return whether any was refuted."""
        found = False
        for item, k in self._open(state):
            for follows in (True, False):
                while state.before[item, k] < state.after[item, k] and self._fails(
                    state, item, k, follows, depth
                ):
                    found = True
                    self._exclude(state, (item, k, follows))
        return found

    def _open(self, state: WindowState) -> Iterator[tuple[int, int]]:
        """Yield the items and queues with open orders, late items first."""
        for item in np.argsort(-state.earliest, kind="stable").tolist():
            for k in range(int(self.arrays.held[self.arrays.device[self.arrays.queue[item]]])):
                if (
                    k != self.arrays.local[self.arrays.queue[item]]
                    and state.before[item, k] < state.after[item, k]
                ):
                    yield item, k

    def _fails(self, state: WindowState, item: int, k: int, follows: bool, depth: int) -> bool:
        """Return whether a supposition leads to a contradiction, and leave the state as it was."""
        if self.budget.left <= 0:
            raise UnprovenError
        state.counter[RECORDING], state.counter[RECORDED] = 1, 0
        suppose(self.arrays, state, item, k, follows)
        stands = propagate(self.arrays, state, depth)
        clear(state)
        undo(state)
        return not stands

    def _exclude(self, state: WindowState, side: Side) -> None:
        """Record that a supposition fails, however long that takes, and enter its opposite."""
        item, k, follows = side
        a, b = self._order(state, side)
        part = copy_of(state)
        suppose(self.arrays, part, item, k, follows)
        self.derivation.suppose_and(a, b, lambda: self._refute(part))
        exclude(self.arrays, state, item, k, follows)
        self._settle(state)

    def _order(self, state: WindowState, side: Side) -> tuple[int, int]:
        """Return the items (a, b) such that the supposition says that a precedes b."""
        item, k, follows = side
        first = int(self.arrays.first[self.arrays.on[self.arrays.device[self.arrays.queue[item]], k]])
        if follows:
            return item, first + int(state.before[item, k])
        return first + int(state.after[item, k]) - 1, item

    def _branch(self, state: WindowState) -> None:
        """Refute one side of the order whose two sides narrow the windows most, by a search of its own."""
        best: tuple[int, Side] | None = None
        for item, k in self._open(state):
            left = [self._left(state, (item, k, follows)) for follows in (True, False)]
            value = (max(left), (item, k, left[0] < left[1]))
            if best is None or value < best:
                best = value
        if best is None:
            raise UnprovenError  # everything is decided, and a schedule may lie in the windows
        self._exclude(state, best[1])

    def _left(self, state: WindowState, side: Side) -> int:
        """Return how much stays open under a supposition: the sum of the widths of all windows."""
        if self.budget.left <= 0:
            raise UnprovenError
        state.counter[RECORDING], state.counter[RECORDED] = 1, 0
        suppose(self.arrays, state, *side)
        propagate(self.arrays, state, _DEPTHS[-1])
        left = int((state.after - state.before).sum())
        clear(state)
        undo(state)
        return left
