"""Search for a proof that no schedule costs at most a target.

The proof narrows *windows*, which limit the starts of operations and their orders on each device. An *item*
is an operation in a queue of alike operations of one device, which run in sequence. Where the rules for
windows find nothing more, an order of items is supposed. If that leads to a contradiction, the opposite
holds.

The compiled rules of `solver.windows` find the items whose rules narrow something, and the suppositions that
fail. Only for these are the rules of the checker applied, which take a hundred times as long. In the end, the
steps that the contradiction does not need are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tightpipe.solver.bounds.energetic_kernel import overload_of
from tightpipe.solver.queues import queues_of
from tightpipe.solver.windows import Windows
from tightpipe.solver.windows.agenda_kernel import exclude, push_all, suppose
from tightpipe.solver.windows.propagate_kernel import REFUTED, fails, look
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
from tightpipe.solver.windows.windows import apply_rules

from ..model.instance import Instance
from ..params.budget import Budget
from .check_proof import FAR, CheckError, Problem, RefutedError
from .check_proof import Windows as CheckedWindows
from .derivation import Derivation, Step, overload_step

# (item, k, follows): the supposition that all items of the k-th queue of the item's device whose order with
# the item is open follow the item, or, if `follows` is False, precede it. An order is open if the windows do
# not decide it.
Side = tuple[int, int, bool]


class UnprovenError(Exception):
    """No proof was found that the checker can verify."""


class Refuter:
    """A search for steps that prove that no schedule costs at most a target.

    `inner` is the cost of `instance` that refutes the target: it is less if a step takes more than its
    operations, which only `problem` knows.
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
        """Return proof steps that lead to a contradiction, some of which may be superfluous."""
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

        Raise an UnprovenError if the time is over, or the steps do not show a contradiction that is there.
        """
        possible, state.counter[RECORDING] = True, 1
        while state.counter[LENGTH] > 0 and possible:
            if self.budget.left <= 0:
                raise UnprovenError
            item = int(state.agenda[state.counter[HEAD]])
            state.counter[RECORDED] = 0
            possible = apply_rules(self.arrays, state, 1)
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
        """Try both suppositions about every open order, exclude each that fails; return how many failed."""
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
        """Record a proof that the supposition `side` leads to a contradiction, and enter its opposite."""
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
        """Return the supposition to refute next, chosen by how many orders each would leave open (`look`).

        The item and queue are those for which the larger number of the two sides is least, and the
        supposition is the one with the smaller number. Raise an UnprovenError if no order is open.
        """
        both = self.found.max(axis=2)
        if (both < 0).all():
            raise UnprovenError  # everything is decided, and a schedule may lie in the windows
        item, k = np.unravel_index(np.where(both < 0, np.iinfo(both.dtype).max, both).argmin(), both.shape)
        follows, precedes = self.found[item, k, 1], self.found[item, k, 0]
        return int(item), int(k), bool(follows < precedes)


Place = tuple[str, int]  # the name of a list of the windows, and a position in it
_LISTS = ("early", "late", "low", "high", "frame_early", "frame_late")


def trimmed(problem: Problem, target: int, anchor: int, steps: list[Step]) -> list[Step]:
    """Return, in the same sequence, the steps that are needed to reach the contradiction."""
    try:
        tracing = _Tracing(problem, target, anchor)
    except RefutedError:
        return []
    nodes = tracing.execute(steps)
    needed = _needed(nodes[-1])
    return [node.step for node in nodes if node in needed]


@dataclass(slots=True, eq=False)
class _Node:
    """A step, or a supposition, with the nodes of the steps that wrote the values which it used."""

    step: Step
    premises: set[_Node] = field(default_factory=set)


@dataclass(slots=True)
class _Reads:
    """The places in the lists of the windows that were read while `noting` was true."""

    places: set[Place] = field(default_factory=set)
    noting: bool = False


class _Traced(list[int]):
    """A list that notes which of its positions are read."""

    def __init__(self, values: Iterable[int], name: str, reads: _Reads) -> None:
        super().__init__(values)
        self.name, self.reads = name, reads

    def __getitem__(self, at: Any) -> Any:
        if self.reads.noting:
            self.reads.places.add((self.name, at))
        return super().__getitem__(at)


class _Tracing(CheckedWindows):
    """Windows that note which steps use the values that other steps wrote."""

    def __init__(self, problem: Problem, target: int, anchor: int) -> None:
        self._reads = _Reads()
        self._node = _Node([])
        self._writer: dict[Place, _Node] = {}
        self._undone: list[tuple[Place, _Node | None]] = []
        super().__init__(problem, target, anchor)
        for name in _LISTS:
            setattr(self, name, _Traced(getattr(self, name), name, self._reads))

    def execute(self, steps: list[Step]) -> list[_Node]:
        """Run steps until one leads to a contradiction, and return the nodes of all steps up to that one."""
        nodes = []
        for step in steps:
            nodes.append(_Node(step))
            if self._closes(nodes[-1]):
                return nodes
        raise CheckError("the steps lead to no contradiction")

    def charge(self, work: int) -> None:
        """Count nothing, as the steps that are not trimmed yet may take more work than a proof may."""

    def narrow(self, lower: Any, upper: Any, at: int, least: int = -FAR, most: int = FAR) -> None:
        """Narrow lower[at] and upper[at] as the checker does, and note which step wrote them.

        If the two values cross, both are marked as read, so that the steps which wrote them are kept: the
        contradiction rests on these values.
        """
        if not isinstance(lower, _Traced):
            return super().narrow(lower, upper, at, least, most)  # before the lists are traced
        noting, self._reads.noting = self._reads.noting, False
        for values, better in ((lower, least > lower[at]), (upper, most < upper[at])):
            if better:
                place = (values.name, at)
                self._undone.append((place, self._writer.get(place)))
                self._writer[place] = self._node
        try:
            super().narrow(lower, upper, at, least, most)
        except RefutedError:
            self._reads.places |= {(lower.name, at), (upper.name, at)}
            raise
        finally:
            self._reads.noting = noting
        return None

    def precede(self, a: int, b: int) -> None:
        """Enter that item a, an operation in a queue of alike operations, precedes item b.

        Values that are read only to find the items whose orders change do not count as read.
        """
        noting, self._reads.noting = self._reads.noting, False
        try:
            super().precede(a, b)
        finally:
            self._reads.noting = noting

    def _closes(self, node: _Node) -> bool:
        """Run the step of a node, set its premises, and return whether the step leads to a contradiction."""
        rule, *arguments = node.step
        self._begin(node)
        try:
            if rule == "suppose":
                self._refute(node, *arguments)
            else:
                getattr(self, rule)(*arguments)
        except RefutedError:
            return True
        finally:
            self._reads.noting = False
            node.premises |= self._used()
        return False

    def _begin(self, node: _Node) -> None:
        self._node = node
        self._reads.places.clear()
        self._reads.noting = True

    def _used(self) -> set[_Node]:
        """Return the nodes of the steps that wrote the values which were read."""
        return {self._writer[place] for place in self._reads.places if place in self._writer}

    def _refute(self, node: _Node, a: int, b: int, steps: list[Step]) -> None:
        """Run the step `suppose` of a node: refute that item a precedes item b, and enter the opposite."""
        supposition, marks, nodes = _Node([]), (len(self.trail), len(self._undone)), []
        self.depth += 1
        self._begin(supposition)
        try:
            self.precede(a, b)
            nodes = self.execute(steps)
            needed = _needed(nodes[-1])
        except RefutedError:
            needed = self._used()
        self._take_back(*marks)
        self.depth -= 1
        inside = {supposition, *nodes}
        node.step = ["suppose", a, b, [inner.step for inner in nodes if inner in needed]]
        node.premises = needed - inside
        self._begin(node)
        self.precede(b, a)

    def _take_back(self, trail: int, undone: int) -> None:
        self.take_back(trail)
        for place, writer in reversed(self._undone[undone:]):
            if writer is None:
                self._writer.pop(place, None)
            else:
                self._writer[place] = writer
        del self._undone[undone:]


def _needed(*ends: _Node) -> set[_Node]:
    """Return the given nodes and all their premises, direct and indirect."""
    found, agenda = set(ends), list(ends)
    while agenda:
        for premise in agenda.pop().premises - found:
            found.add(premise)
            agenda.append(premise)
    return found
