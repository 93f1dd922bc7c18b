"""The variables of the mixed-integer model: start times, orders of items, and which items run jointly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pulp

from tightpipe.model.graph import NO_LIMIT, graph_of
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Schedule

from ..queues import Queues, starts_of
from ..windows import Windows
from ..windows.windows import OpenOrders

Variable = Any  # a pulp.LpVariable: PuLP has no types


@dataclass(slots=True)
class Linear:
    """The expression ``constant + sum(coefficient * variable)``, to which terms are added in place."""

    constant: int = 0
    terms: list[tuple[Variable, int]] = field(default_factory=list)

    def plus(self, variable: Variable, coefficient: int = 1) -> Linear:
        """Add a term to the expression, and return the expression."""
        self.terms.append((variable, coefficient))
        return self

    def add(self, terms: Iterable[tuple[Variable, int]], factor: int = 1) -> Linear:
        """Add `factor` times some terms to the expression, and return the expression."""
        self.terms += [(variable, factor * coefficient) for variable, coefficient in terms]
        return self

    def at_least(self, problem: pulp.LpProblem, least: int) -> None:
        """Add the row ``expression >= least`` to a problem, unless the expression has no variables."""
        if self.terms:
            row = pulp.LpAffineExpression(self._merged())
            problem.addConstraint(pulp.LpConstraint(row, pulp.LpConstraintGE, rhs=least - self.constant))

    def _merged(self) -> list[tuple[Variable, int]]:
        if len({id(variable) for variable, _ in self.terms}) == len(self.terms):
            return self.terms
        merged: dict[int, tuple[Variable, int]] = {}
        for variable, coefficient in self.terms:
            merged[id(variable)] = variable, merged.get(id(variable), (variable, 0))[1] + coefficient
        return list(merged.values())


class Joint:
    """Which items run as one, and what that changes.

    A B may run as one with its W, and an F with both, as a pair. The W of a fused backward is *void*: it
    takes no time, and stands where its backward and the W before it have ended. So W's stay first in, first
    out, although a fused backward may overtake W's that wait. An F and the B of a pair start together.

    Where items may run jointly, W's share no queue: the W of rank k belongs to the B of rank k.

    - `fused`: for each B with a W, whether they run as one, in a pair or not.
    - `weight`: for each such B its W.
    - `pairs`: for each F and each B that may run as a pair, whether they do.
    - `freed`: for each such B and each item that takes memory: whether the B is fused and runs before that
      item, which its void W follows. The memory of the W is free by then.
    - `freeing`: for each item that takes memory, terms that add up to what void W's after it have freed
      before.
    - `longer`: for each item, terms that add up to the ticks that it takes longer than alone.
    - `before`, `after`: for each queue, the ticks that an item of it surely takes before, and after, another
      item. Where a fused backward may take less than B and W, before the other item the B counts with the
      least of B and BW, and the W with the rest of a BW: if the W is there, the backward is over. After the
      other item, the W counts in full unless it is void.
    - `saved`: for each device, terms that add up to the ticks that pairs take less than what they count
      there.
    """

    def __init__(self, problem: pulp.LpProblem, queues: Queues, orders: OpenOrders) -> None:
        self._problem, self._queues, self._orders = problem, queues, orders
        self.fused: dict[int, Variable] = {}
        self.weight: dict[int, int] = {}
        self.pairs: dict[tuple[int, int], Variable] = {}
        self.freed: dict[tuple[int, int], Variable] = {}
        self.longer: defaultdict[int, list[tuple[Variable, int]]] = defaultdict(list)
        self.freeing: defaultdict[int, list[tuple[Variable, int]]] = defaultdict(list)
        self.before = [queue.duration for queue in queues.queues]
        self.after = self.before.copy()
        self.saved: list[list[tuple[Variable, int]]] = [[] for _ in orders.on]
        graph = graph_of(queues.instance)
        for b, node in enumerate(graph.nodes if graph.joint else ()):  # each node has a queue of its own
            if node.fused:
                w = queues.index[OpKind.W, node.mb_class, node.stage]
                self._fuse(b, w, node.fused)
                if graph.limits[node.device] < NO_LIMIT and graph.nodes[w].delta:
                    self._free(b, w)
        for (f, b), ticks in graph.pairs.items():
            w = queues.index[OpKind.W, graph.nodes[b].mb_class, graph.nodes[b].stage]
            self._pair(f, b, ticks, graph.nodes[b].fused, self.before[b] + self.before[w])

    def _binary(self, name: str) -> Variable:
        return self._problem.add_variable(name, 0, 1, cat="Integer")

    def _fuse(self, b: int, w: int, ticks: int) -> None:
        alone, weight = self.after[b], self.after[w]
        for i, j in zip(self._orders.items(b), self._orders.items(w), strict=True):
            self.fused[i], self.weight[i] = self._binary(f"u{i}"), j
            self.longer[i].append((self.fused[i], ticks - alone))
            self.longer[j].append((self.fused[i], -weight))
        self.before[b] = self.after[b] = min(alone, ticks)
        self.before[w] = min(weight, ticks - self.before[b])

    def _pair(self, f: int, b: int, ticks: int, fused: int, backward: int) -> None:
        alone, device = self._queues.queues[f].duration, self._queues.queues[f].device
        # neither F nor B counts beside the other
        saved = max(alone + backward - ticks, alone, self.before[b])
        for i in self._orders.items(f):
            for rank in self._orders.open_ranks(i, b):
                j = self._orders.first[b] + rank
                self.pairs[i, j] = pair = self._binary(f"p{i}_{j}")
                self.longer[i].append((pair, ticks - alone))
                self.longer[j].append((pair, ticks - fused))
                self.saved[device].append((pair, saved))

    def _free(self, b: int, w: int) -> None:
        delta = self._queues.queues[w].delta
        for x in self._orders.on[self._queues.queues[b].device]:
            for i in self._orders.items(x) if takes_memory(self._queues, x) else ():
                for rank in range(self._orders.open_ranks(i, w).start, self._orders.open_ranks(i, b).stop):
                    j = self._orders.first[b] + rank
                    self.freed[j, i] = self._problem.add_variable(f"z{j}_{i}", 0, 1)
                    self.freeing[i].append((self.freed[j, i], -delta))

    def set_start(self, starts: Starts, place: list[int]) -> None:
        """Set the initial values from a schedule whose items have these places in time."""
        for i, variable in self.fused.items():
            variable.setInitialValue(int(i in starts.fused))
        for pair, variable in self.pairs.items():
            variable.setInitialValue(int(pair in starts.pairs))
        for (b, i), variable in self.freed.items():
            freed = b in starts.fused and place[b] < place[i] < place[self.weight[b]]
            variable.setInitialValue(int(freed))


def takes_memory(queues: Queues, x: int) -> bool:
    """Return whether the items of a queue take memory when they start."""
    return queues.queues[x].delta > 0 or bool(queues.arrays.queues["passing"][x])


@dataclass(frozen=True, slots=True)
class Starts:
    """The items of a schedule."""

    start: list[int]  #: when each item starts, in ticks
    end: list[int]  #: when each item ends, in ticks
    fused: set[int]  #: the B's that run as one with their W
    pairs: set[tuple[int, int]]  #: each F and B that run as a pair

    def since(self, origin: int) -> Starts:
        """Return the same with times that count from the tick `origin`."""
        start, end = ([time - origin for time in times] for times in (self.start, self.end))
        return replace(self, start=start, end=end)

    def sequence(self) -> list[int]:
        """Return the place of each item in time; of a pair, the F has the first."""
        items = sorted(range(len(self.start)), key=lambda i: (self.start[i], self.end[i], i))
        return np.argsort(items).tolist()  # type: ignore[no-any-return]


def items_of(queues: Queues, schedule: Schedule) -> Starts:
    """Return the items of a schedule with microbatches first in, first out."""
    graph = queues.arrays
    took = graph.queues["duration"][graph.queue]
    if queues.pooled:
        start = np.array(starts_of(queues, schedule))
        return Starts(start.tolist(), (start + took).tolist(), set(), set())
    kind, stage, unit = schedule.order.operations.T
    joined = kind == OpKind.BW
    node = graph.node[np.where(joined, OpKind.B, kind), graph.mb_class[unit], stage]
    items = graph.nodes["first"][node] + graph.rank[unit]
    start, end = np.zeros(len(took), np.int64), np.zeros(len(took), np.int64)
    start[items], end[items] = schedule.start, schedule.end
    void = graph.node[OpKind.W, graph.mb_class[unit], stage][joined]
    weight = (graph.nodes["first"][void] + graph.rank[unit[joined]]).tolist()
    start[weight] = end[weight] = schedule.end[joined]
    for q, queue in enumerate(queues.queues):
        own = range(graph.first[q], graph.first[q + 1]) if queue.kind is OpKind.W else ()
        for before, i in pairwise(own):
            if i in weight:
                start[i] = end[i] = max(end[i], end[before])
    paired = {(int(items[k]), int(items[k + 1])) for k in np.flatnonzero(schedule.order.pairs)}
    return Starts(start.tolist(), end.tolist(), set(items[joined].tolist()), paired)


class Variables(OpenOrders):
    """The variables of the model, and linear expressions of them that several constraints need.

    Only the cost and the binaries have to be integers. With these fixed, the start times satisfy a system of
    difference constraints with integer data, which has an integer solution if it has any solution. The order
    of two items needs no binary if the windows, which are feasible, decide it.

    There is a binary in `order` for queues x < y of a device, the item of rank k in x and each item of y with
    open order. `frame` has the index in `begin` of the frame of each device.
    """

    def __init__(self, problem: pulp.LpProblem, queues: Queues, windows: Windows, lower_bound: int) -> None:
        super().__init__(queues, windows)
        self.frame = list(range(len(self.on))) if windows.floating else [0] * len(self.on)
        self.cost = problem.add_variable("cost", lower_bound, windows.horizon, cat="Integer")
        self.begin = self._begins(problem)
        self.start = self._starts(problem)
        self.order = self._orders(problem)
        self.joint = Joint(problem, queues, self)

    def precedes(self, x: int, k: int, y: int, rank: int) -> Variable:
        """Return the binary "the item of rank k in queue x runs before the item of rank `rank` in queue y".

        The order of these two items has to be open, and x has to be less than y.
        """
        return self.order[x, y, k][rank - self.open_ranks(self.first[x] + k, y).start]

    def add_count_before(self, expression: Linear, weight: int, x: int, k: int, y: int) -> None:
        """Add `weight` times the number of items of y that run before the item of rank k in x, in place."""
        ranks = self.open_ranks(self.first[x] + k, y)
        expression.constant += weight * ranks.start
        for rank in ranks:
            self.add_before(expression, weight, x, k, y, rank)

    def add_before(self, expression: Linear, weight: int, x: int, k: int, y: int, rank: int) -> None:
        """Add `weight`, in place, if the item of this rank in y runs before the one of rank k in x."""
        ranks = self.open_ranks(self.first[x] + k, y)
        if rank not in ranks:
            expression.constant += weight * (rank < ranks.start)
        elif x > y:
            expression.plus(self.precedes(y, rank, x, k), weight)
        else:
            expression.constant += weight
            expression.plus(self.precedes(x, k, y, rank), -weight)

    def place(self, i: int) -> tuple[int, int]:
        """Return the queue of an item and its rank there."""
        q = int(self.windows.arrays.graph.queue[i])
        return q, i - self.first[q]

    def set_start(self, starts: Starts, begin: list[int], cost: int) -> None:
        """Set the initial value of every variable (the MIP start) from a schedule with these frames."""
        self.cost.setInitialValue(cost)
        for var, time in zip((*self.begin, *self.start), (*begin, *starts.start), strict=True):
            var.setInitialValue(time)
        place = starts.sequence()
        for (x, y, k), binaries in self.order.items():
            i = self.first[x] + k
            for rank, binary in zip(self.open_ranks(i, y), binaries, strict=True):
                binary.setInitialValue(int(place[i] < place[self.first[y] + rank]))
        self.joint.set_start(starts, place)

    def _begins(self, problem: pulp.LpProblem) -> list[Variable]:
        """Return a variable for the start of each frame; times count from the start of the anchor's frame."""
        early, late = self.windows.frames
        return [problem.add_variable(f"b{e}", early[e], late[e]) for e in sorted(set(self.frame))]

    def _starts(self, problem: pulp.LpProblem) -> list[Variable]:
        earliest, latest = self.windows.earliest.tolist(), self.windows.latest.tolist()
        return [
            problem.add_variable(f"s{q}_{i - self.first[q]}", earliest[i], latest[i])
            for q in range(len(self.queues))
            for i in self.items(q)
        ]

    def _orders(self, problem: pulp.LpProblem) -> dict[tuple[int, int, int], list[Variable]]:
        return {
            (x, y, k): [
                problem.add_variable(f"o{x}_{k}_{y}_{rank}", 0, 1, cat="Integer")
                for rank in self.open_ranks(i, y)
            ]
            for x, y in self.pairs()
            for k, i in enumerate(self.items(x))
        }
