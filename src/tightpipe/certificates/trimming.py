"""Trimming leaves out of a proof the steps that its contradiction does not use.

The steps run once more, on windows that note which values each step reads and writes. A step is needed if the
contradiction reads a value that the step wrote last, directly or by way of other needed steps. Without the
other steps some values are less narrow. The rules are monotone in the values that they read, so a needed step
still narrows the values that other needed steps read from it at least as far as they require.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .check_proof import FAR, CheckError, Problem, RefutedError, Windows

Step = list[Any]
Place = tuple[str, int]  # the name of a list of the windows, and a position in it
_LISTS = ("early", "late", "low", "high", "frame_early", "frame_late")


def trimmed(problem: Problem, target: int, anchor: int, steps: list[Step]) -> list[Step]:
    """Return, in the same sequence, the steps that are needed to reach the contradiction.

    Raise a CheckError if the steps lead to no contradiction.

    - `problem`, `target`, `anchor`: the arguments of `Windows`.
    - `steps`: steps that lead to a contradiction.
    """
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


class _Tracing(Windows):
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
        """Run steps until one leads to a contradiction, and return the nodes of all steps up to that one.

        Raise a CheckError if no step leads to a contradiction.
        """
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
        """Run the step `suppose` of a node: refute that item a precedes item b, and enter that b precedes a.

        The inner `steps` run while it is supposed that a precedes b. The node keeps only those of them that
        are needed for their contradiction.
        """
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
