"""The constraints of the lattice model, one method for each family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from tightpipe.core.operation import OpKind

from ...queues import Queues
from .variables import Variables

Times = Sequence[cp_model.IntVar] | Mapping[int, cp_model.IntVar]


class Constraints:
    """Adds the constraints of the model, one method for each family.

    `queues` defines items, queues and pools; `windows.windows` defines frames and windows.

    Parameters
    ----------
    model
        The CP-SAT model that receives the constraints.
    queues
        The queues of the instance.
    variables
        The variables of the CP-SAT model.
    cost
        The largest length of a frame: the variable that is minimised, or the horizon in ticks.
    """

    def __init__(
        self, model: cp_model.CpModel, queues: Queues, variables: Variables, cost: cp_model.IntVar | int
    ) -> None:
        self.model, self.queues, self.variables, self.cost = model, queues, variables, cost
        self.start = variables.start

    def add_constraints(self) -> None:
        """Add to the model the constraints of every family; each of the methods below adds one family."""
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
        """Require that the items of a queue run one after another."""
        for q, queue in enumerate(self.queues.queues):
            for i, j in pairwise(self.variables.items(q)):
                self.model.add(self.start[j] >= self.start[i] + queue.duration)

    def precedence(self) -> None:
        """Require that an item starts after the end of the item that it waits for, plus communication."""
        for q, r, lag in self.queues.precedences():
            least = self.queues.queues[q].duration + lag
            for i, j in zip(self.variables.items(q), self.variables.items(r), strict=True):
                self.model.add(self.start[j] >= self.start[i] + least)

    def busy_links(self) -> None:
        """Require that messages leave one after another, on each link where a message may have to wait.

        A message leaves no earlier than its item ends, and at least one link occupancy after the previous
        message on the link. The receiving item starts after the message has arrived.
        """
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
        """Require that of two items of a device in different queues one ends before the other starts."""
        for x, y in self.variables.pairs():
            least = self.queues.queues[x].duration, self.queues.queues[y].duration
            self._in_turn(x, y, self.start, least)

    def lattice(self) -> None:
        """Require that the order booleans of two queues agree with the sequence of items in each queue.

        If item i precedes item j, then i also precedes the item after j in the queue of j, and the item
        before i in the queue of i also precedes j.
        """
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
        """Require that a device runs one item at a time."""
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
        """Require that at least k + 1 B's of a pool's stages come before the W of rank k in the pool."""
        for q, queue in enumerate(self.queues.queues):
            if queue.kind is OpKind.W and len(queue.members) > 1:
                sources = self.queues.backwards_of(q)
                for k in range(queue.count):
                    ready = sum(self.variables.count_before(q, k, y) for y in sources)
                    if not isinstance(ready, int):
                        self.model.add(ready >= k + 1)

    def memory(self) -> None:
        """Require that each device's memory is within its limit whenever an F has started."""
        for device, on in enumerate(self.variables.on):
            limit = self.queues.instance.memory_limit(device)
            if limit is None:
                continue
            for x in on:
                if self.queues.queues[x].delta > 0:
                    self._memory_at(x, on, limit)

    def spans(self) -> None:
        """Require that every F of a device starts, and every W ends, within the device's frame.

        Then all other items lie in the frame too, because every device starts with an F and ends with a W.
        """
        for device, on in enumerate(self.variables.on):
            frame = self.variables.frame[device]
            for q in on:
                items, queue = self.variables.items(q), self.queues.queues[q]
                if queue.kind is OpKind.F:
                    self.model.add(self.start[items[0]] >= frame)
                if queue.kind is OpKind.W:
                    self.model.add(self.start[items[-1]] + queue.duration <= frame + self.cost)

    def idle_time(self) -> None:
        """Require that a device idles from 0 to `cost` - work ticks between the start of its frame and an F.

        The rest of the time before the F is the work that precedes it. Once all order booleans are fixed,
        these constraints are implied by `no_overlap` and `spans`. While some are open, they bound the start
        of each F by the work that is already known to precede it. B's and W's get no such constraints, which
        would take more time than they save.
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
        """Require that the times of the items of queues x and y agree with the order booleans.

        The times of an item of x and an item of y are at least ``least[0]`` ticks apart if the item of x runs
        first, and at least ``least[1]`` ticks if the item of y runs first.
        """
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
