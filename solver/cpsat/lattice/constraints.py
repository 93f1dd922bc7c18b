"""The constraint families of the lattice model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from tightpipe.core.operation import OpKind

from ...queues import Queues
from .variables import Variables

Times = Sequence[cp_model.IntVar] | Mapping[int, cp_model.IntVar]


class Constraints:
    """Adds the constraints of the model, one method per family.

    Parameters
    ----------
    model
        Receives the constraints.
    queues
        The problem.
    variables
        Its variables.
    cost
        What no frame is longer than.
    """

    def __init__(
        self, model: cp_model.CpModel, queues: Queues, variables: Variables, cost: cp_model.IntVar | int
    ) -> None:
        self.model, self.queues, self.variables, self.cost = model, queues, variables, cost
        self.start = variables.start

    def add_constraints(self) -> None:
        """Add all families."""
        self.sequence()
        self.precedence()
        self.busy_links()
        self.order_in_time()
        self.lattice()
        self.no_overlap()
        self.weight_after_backward()
        self.memory()
        self.spans()
        self.idle_time()

    def sequence(self) -> None:
        """Elements of a queue run one after another."""
        for q, queue in enumerate(self.queues.queues):
            for i, j in pairwise(self.variables.items(q)):
                self.model.add(self.start[j] >= self.start[i] + queue.duration)

    def precedence(self) -> None:
        """An item starts after the item that it waits for, plus communication."""
        for q, r, lag in self.queues.precedences():
            least = self.queues.queues[q].duration + lag
            for i, j in zip(self.variables.items(q), self.variables.items(r), strict=True):
                self.model.add(self.start[j] >= self.start[i] + least)

    def busy_links(self) -> None:
        """A message leaves after its item, `occupancy` after the one before on its link, then arrives."""
        v, busy = self.variables, self.variables.occupancy
        for link in v.links:
            for q, r, lag in link:
                for i, j in zip(v.items(q), v.items(r), strict=True):
                    self.model.add(v.departure[i] >= self.start[i] + self.queues.queues[q].duration)
                    self.model.add(self.start[j] >= v.departure[i] + lag)
                for i, j in pairwise(v.items(q)):
                    self.model.add(v.departure[j] >= v.departure[i] + busy)
            for (x, _, _), (y, _, _) in combinations(link, 2):
                self._in_turn(x, y, v.departure, (busy, busy))

    def order_in_time(self) -> None:
        """What runs first ends before the other starts."""
        for x, y in self.variables.pairs():
            least = self.queues.queues[x].duration, self.queues.queues[y].duration
            self._in_turn(x, y, self.start, least)

    def lattice(self) -> None:
        """Who precedes an element precedes the next one; who follows an element follows the one before."""
        v = self.variables
        for x, y in v.pairs():
            for k, i in enumerate(v.items(x)):
                ranks = v.open_ranks(i, y)
                for rank in ranks:
                    literal = v.precedes(x, k, y, rank)
                    if rank + 1 < ranks.stop:
                        self.model.add_implication(literal, v.precedes(x, k, y, rank + 1))
                    if k > 0 and rank in v.open_ranks(i - 1, y):
                        self.model.add_implication(literal, v.precedes(x, k - 1, y, rank))

    def no_overlap(self) -> None:
        """A device runs one item at a time."""
        for on in self.variables.on:
            self.model.add_no_overlap(
                [
                    self.model.new_fixed_size_interval_var(
                        self.start[i], self.queues.queues[q].duration, f"i{i}"
                    )
                    for q in on
                    for i in self.variables.items(q)
                ]
            )

    def weight_after_backward(self) -> None:
        """The k-th W of a pool has k + 1 of the pool's B's before it."""
        for q, queue in enumerate(self.queues.queues):
            if queue.kind is OpKind.W and len(queue.members) > 1:
                sources = self.queues.backwards_of(q)
                for k in range(queue.count):
                    ready = sum(self.variables.count_before(q, k, y) for y in sources)
                    if not isinstance(ready, int):
                        self.model.add(ready >= k + 1)

    def memory(self) -> None:
        """When an F has started, the device's memory is within its limit."""
        for device, on in enumerate(self.variables.on):
            limit = self.queues.instance.memory_limit(device)
            if limit is None:
                continue
            for x in on:
                if self.queues.queues[x].delta > 0:
                    self._memory_at(x, on, limit)

    def spans(self) -> None:
        """A device starts with an F and ends with a W, both within its frame."""
        for device, on in enumerate(self.variables.on):
            frame = self.variables.frame[device]
            for q in on:
                items, queue = self.variables.items(q), self.queues.queues[q]
                if queue.kind is OpKind.F:
                    self.model.add(self.start[items[0]] >= frame)
                if queue.kind is OpKind.W:
                    self.model.add(self.start[items[-1]] + queue.duration <= frame + self.cost)

    def idle_time(self) -> None:
        """What precedes an F fills the time before it, but for what the device may idle.

        Follows from no overlap once all orders are fixed; before that it ties a start to what is known of
        many orders at once. For B's and W's too it would cost more than it saves.
        """
        for device, on in enumerate(self.variables.on):
            durations = {q: self.queues.queues[q].duration for q in on}
            idle = self.cost - sum(durations[q] * len(self.variables.items(q)) for q in on)
            for x in on:
                if self.queues.queues[x].kind is not OpKind.F:
                    continue
                for k, i in enumerate(self.variables.items(x)):
                    before = sum(durations[y] * self.variables.count_before(x, k, y) for y in on if y != x)
                    full = self.variables.frame[device] + k * durations[x] + before
                    self.model.add(self.start[i] >= full)
                    self.model.add(self.start[i] <= full + idle)

    def _memory_at(self, x: int, on: list[int], limit: int) -> None:
        queues = self.queues.queues
        for k in range(queues[x].count):
            others = sum(queues[y].delta * self.variables.count_before(x, k, y) for y in on if y != x)
            if not isinstance(others, int):
                self.model.add((k + 1) * queues[x].delta + others <= limit)

    def _in_turn(self, x: int, y: int, time: Times, least: tuple[int, int]) -> None:
        """Keep the times of queues x and y in the sequence of their items: `least` apart, by who is first."""
        v = self.variables
        for k, i in enumerate(v.items(x)):
            ranks = v.open_ranks(i, y)
            if ranks.start > 0:
                self.model.add(time[i] >= time[v.first[y] + ranks.start - 1] + least[1])
            if ranks.stop < len(v.items(y)):
                self.model.add(time[v.first[y] + ranks.stop] >= time[i] + least[0])
            for rank in ranks:
                literal, j = v.precedes(x, k, y, rank), v.first[y] + rank
                self.model.add(time[j] >= time[i] + least[0]).only_enforce_if(literal)
                self.model.add(time[i] >= time[j] + least[1]).only_enforce_if(~literal)
