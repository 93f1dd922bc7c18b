"""Search for a proof that no schedule costs at most a target.

The proof narrows *windows*, which limit the starts of operations and their orders on each device. An *item*
is an operation in a queue of alike operations of one device, which run in sequence. Where the rules for
windows find nothing more, an order of items is supposed. If that leads to a contradiction, the opposite
holds.

The compiled rules of `solver.windows` find the items whose rules narrow something, and the suppositions that
fail. Only for these are the rules of the checker applied, which take a hundred times as long.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tightpipe.solver.bounds.searches.energetic_kernel import overload_of
from tightpipe.solver.queues import queues_of
from tightpipe.solver.windows import Windows
from tightpipe.solver.windows.agenda_kernel import exclude, push_all, suppose
from tightpipe.solver.windows.propagate_kernel import propagate
from tightpipe.solver.windows.window_state_kernel import (
    HEAD,
    LENGTH,
    RECORDED,
    RECORDING,
    WindowState,
    copy_of,
    open_state,
    under_horizon,
)

from ..model.instance import Instance
from ..params.budget import Budget
from .check_proof import Problem, RefutedError
from .derivation import Derivation, Step, overload_step
from .look_ahead_kernel import REFUTED, fails, look

# (item, k, follows): the supposition that all items of the k-th queue of the item's device whose order with
# the item is open follow the item, or, if `follows` is False, precede it. An order is open if the windows do
# not decide it.
Side = tuple[int, int, bool]


class UnprovenError(Exception):
    """No proof was found that the checker can verify."""


class Refuter:
    """A search for steps that prove that no schedule costs at most a target.

    Parameters
    ----------
    instance, problem
        The problem, in the form of this package and in that of the checker, without operations that overlap
        and without links that messages keep busy.
    target
        The cost to refute, in ticks.
    inner
        The cost of `instance` that refutes it: less than `target` if a step takes more than its operations,
        which only `problem` knows.
    budget
        The time for the search, and the parameters of windows and of shaving.
    """

    def __init__(self, instance: Instance, problem: Problem, target: int, inner: int, budget: Budget) -> None:
        self.budget, self.target = budget, target
        instance = replace(instance, flush=False)  # the checker's windows leave flushes out
        self.queues, self.instance, self.problem = queues_of(instance), instance, problem
        self.anchor = instance.placement.routes[0][0]
        self.inner = inner
        self.arrays = under_horizon(self.queues.instance, inner, budget.params.windows)
        self.state = open_state(self.arrays, inner)
        self.found = np.zeros((*self.state.before.shape, 2), np.int64)  # by `look`, in its last call

    def steps(self) -> list[Step]:
        """Return proof steps that lead to a contradiction, some of which may be superfluous.

        Raises
        ------
        UnprovenError
            If no such steps are found, e.g. since the deadline has passed.
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
        """Record a proof that no schedule lies in the windows of `state`, then raise `RefutedError`."""
        quick, thorough = self.budget.params.windows.first_steps, self.budget.params.bounds.shaving_thorough
        self._settle(state)
        while True:
            self._overload(state)
            if self._shave(state, quick) == 0 and self._shave(state, thorough) == 0:
                self._exclude(state, self._branch())

    def _settle(self, state: WindowState) -> None:
        """Apply the rules to all items on the agenda of `state`, and record the steps that narrow something.

        The agenda holds the items whose rules have to be applied, as what the rules read has changed. The
        rules may put further items on it.

        Raises
        ------
        RefutedError
            If the recorded steps lead to a contradiction.
        UnprovenError
            If the time is over, or the compiled rules find a contradiction that the steps do not show.
        """
        possible, state.counter[RECORDING] = True, 1
        while state.counter[LENGTH] > 0 and possible:
            if self.budget.left <= 0:
                raise UnprovenError
            item = int(state.agenda[state.counter[HEAD]])
            state.counter[RECORDED] = 0
            possible = propagate(self.arrays, state, 1)
            if state.counter[RECORDED] > 0 or not possible:
                self.derivation.visit(item)
        state.counter[RECORDED] = state.counter[RECORDING] = 0
        if not possible:
            raise UnprovenError  # the recorded steps do not show the contradiction

    def _overload(self, state: WindowState) -> None:
        windows = Windows(self.inner, self.arrays, True, state)
        for device in reversed(range(self.instance.devices)):
            if overload_of(windows, device) > 0:
                step = overload_step(self.derivation, device)
                if step is not None:
                    self.derivation.try_step(step)

    def _shave(self, state: WindowState, steps: int) -> int:
        """Try both suppositions about every open order, and exclude each that fails; return how many failed.

        The propagation of one supposition works on at most `steps` items.
        """
        if self.budget.left <= 0:
            raise UnprovenError
        look(self.arrays, state, steps, self.found)
        count = 0
        refuted = np.argwhere(self.found == REFUTED)
        late_first = np.argsort(-state.earliest[refuted[:, 0]], kind="stable")
        for item, k, side in refuted[late_first].tolist():
            while self._is_open(state, item, k) and fails(self.arrays, state, item, k, side == 1, steps):
                self._exclude(state, (item, k, side == 1))
                count += 1
        return count

    def _is_open(self, state: WindowState, item: int, k: int) -> bool:
        return bool(state.before[item, k] < state.after[item, k])

    def _exclude(self, state: WindowState, side: Side) -> None:
        """Record a proof that the supposition `side` leads to a contradiction, and enter its opposite.

        The proof may need further suppositions.
        """
        item, k, follows = side
        a, b = self._order(state, side)
        part = copy_of(state)
        suppose(self.arrays, part, item, k, follows)
        self.derivation.suppose_and(a, b, lambda: self._refute(part))
        exclude(self.arrays, state, item, k, follows)
        self._settle(state)

    def _order(self, state: WindowState, side: Side) -> tuple[int, int]:
        """Return the items (a, b) for which the supposition `side` means that a precedes b."""
        item, k, follows = side
        graph = self.arrays.graph
        first = int(graph.first[graph.devices["queue"][graph.items["home"][item]] + k])
        if follows:
            return item, first + int(state.before[item, k])
        return first + int(state.after[item, k]) - 1, item

    def _branch(self) -> Side:
        """Return the supposition to refute next, chosen by how many orders each would leave open.

        `look` has found these two numbers for each item and queue with open orders. The item and queue are
        those for which the larger number is least, and the supposition is the one with the smaller number.

        Raises
        ------
        UnprovenError
            If no order is open.
        """
        both = self.found.max(axis=2)
        if (both < 0).all():
            raise UnprovenError  # everything is decided, and a schedule may lie in the windows
        item, k = np.unravel_index(np.where(both < 0, np.iinfo(both.dtype).max, both).argmin(), both.shape)
        follows, precedes = self.found[item, k, 1], self.found[item, k, 0]
        return int(item), int(k), bool(follows < precedes)
