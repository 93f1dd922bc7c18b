"""The constraints of the mixed-integer model, one method for each family, and its objective."""

from __future__ import annotations

from itertools import pairwise

import pulp

from tightpipe.core.operation import OpKind

from ..queues import Queues
from .variables import Linear, Variable, Variables


class Constraints:
    """Adds the constraints of the model, one method for each family.

    `queues` defines items and queues; `windows.windows` defines frames and the horizon. The notation is: s_i
    is the start and d_i the duration of item i, b is the start of its device's frame, and o_ij is 1 if i runs
    before j, else 0. The windows say that s_i lies between e_i and l_i, and s_i - b between h_i and m_i.

    Parameters
    ----------
    problem
        The PuLP problem that receives the constraints.
    queues
        The queues of the instance.
    variables
        The variables of the PuLP problem.
    """

    def __init__(self, problem: pulp.LpProblem, queues: Queues, variables: Variables) -> None:
        self.problem, self.queues, self.variables = problem, queues, variables
        self.start, self.begin = variables.start, variables.begin
        self.early, self.late = variables.windows.earliest.tolist(), variables.windows.latest.tolist()
        self.least, self.most = (times.tolist() for times in variables.windows.from_frame())

    def add_constraints(self) -> None:
        """Add the constraints of all families."""
        self.sequence()
        self.precedence()
        self.windows()
        self.order_in_time()
        self.lattice()
        self.work()
        self.weight_after_backward()
        self.memory()

    def sequence(self) -> None:
        """Require that the items of a queue run one after another."""
        for q, queue in enumerate(self.queues.queues):
            for i, j in pairwise(self.variables.items(q)):
                self._after(i, j, queue.duration)

    def precedence(self) -> None:
        """Require that an item starts after the item that it waits for, plus communication."""
        for q, r, lag in self.queues.precedences():
            least = self.queues.queues[q].duration + lag
            for i, j in zip(self.variables.items(q), self.variables.items(r), strict=True):
                self._after(i, j, least)

    def windows(self) -> None:
        """Require ``h_i <= s_i - b <= m_i`` if the frames of devices have variable starts b."""
        for q, queue in enumerate(self.queues.queues):
            frame = self.variables.frame[queue.device]
            for i in self.variables.items(q) if self.variables.windows.floating else ():
                since = Linear().plus(self.start[i]).plus(self.begin[frame], -1)
                since.at_least(self.problem, self.least[i])
                until = Linear().plus(self.start[i], -1).plus(self.begin[frame])
                until.at_least(self.problem, -self.most[i])

    def order_in_time(self) -> None:
        """Require that of two items of a device, the one that runs first ends before the other one starts.

        The row is ``s_j >= s_i + d_i - M (1 - o_ij)``. In every schedule within the horizon, s_j - s_i is at
        least e_j - l_i and at least h_j - m_i. With M = d_i less the larger of these two, and at least 0, the
        row says nothing new if o_ij = 0. No smaller big-M follows from the windows.
        """
        v = self.variables
        for (x, y, k), binaries in v.order.items():
            i = v.first[x] + k
            ranks = v.open_ranks(i, y)
            if ranks.start > 0:
                self._after(v.first[y] + ranks.start - 1, i, self.queues.queues[y].duration)
            if ranks.stop < len(v.items(y)):
                self._after(i, v.first[y] + ranks.stop, self.queues.queues[x].duration)
            for rank, binary in zip(ranks, binaries, strict=True):
                self._one_after_other(x, i, y, v.first[y] + rank, binary)

    def lattice(self) -> None:
        """Require that the orders of items fit the sequence of their queues.

        If item i precedes item j of another queue, then i also precedes the next item of j's queue, and the
        previous item of i's queue also precedes j.
        """
        v = self.variables
        for x, y in v.pairs():
            for k, i in enumerate(v.items(x)):
                ranks = v.open_ranks(i, y)
                for rank in ranks:
                    binary = v.precedes(x, k, y, rank)
                    if rank + 1 < ranks.stop:
                        following = v.precedes(x, k, y, rank + 1)
                        Linear().plus(following).plus(binary, -1).at_least(self.problem, 0)
                    if k > 0 and rank in v.open_ranks(i - 1, y):
                        earlier = v.precedes(x, k - 1, y, rank)
                        Linear().plus(earlier).plus(binary, -1).at_least(self.problem, 0)

    def work(self) -> None:
        """Require that the frame has enough time for the items before an item, and for those after it.

        The rows are ``s_i - b >= sum of d_j o_ji`` and ``b + cost - s_i - d_i >= sum of d_j (1 - o_ji)``.
        Both sums are over the other items j of the device. Without these rows the linear relaxation would
        ignore the device's work.
        """
        v = self.variables
        for device, on in enumerate(v.on):
            begin = self.begin[v.frame[device]]
            total = sum(self.queues.queues[q].duration * len(v.items(q)) for q in on)
            for x in on:
                for k, i in enumerate(v.items(x)):
                    since = Linear().plus(self.start[i]).plus(begin, -1)
                    until = Linear().plus(self.start[i], -1).plus(begin).plus(v.cost)
                    self._add_work_before(since, -1, x, k, on)
                    self._add_work_before(until, 1, x, k, on)
                    since.at_least(self.problem, 0)
                    until.at_least(self.problem, total)

    def weight_after_backward(self) -> None:
        """Require at least k + 1 B's of a pool's stages before its W of rank k; `queues` defines pools."""
        for q, queue in enumerate(self.queues.queues):
            if queue.kind is OpKind.W and len(queue.members) > 1:
                for k in range(queue.count):
                    ready = Linear()
                    for y in self.queues.backwards_of(q):
                        self.variables.add_count_before(ready, 1, q, k, y)
                    ready.at_least(self.problem, k + 1)

    def memory(self) -> None:
        """Require that each device's memory is within its limit when an F starts."""
        for device, on in enumerate(self.variables.on):
            limit = self.queues.instance.memory_limit(device)
            if limit is None:
                continue
            for x in on:
                if self.queues.queues[x].delta > 0:
                    self._memory_at(x, on, limit)

    def _memory_at(self, x: int, on: list[int], limit: int) -> None:
        queues = self.queues.queues
        for k in range(queues[x].count):
            free = Linear(limit - (k + 1) * queues[x].delta)
            for y in on:
                if y != x:
                    self.variables.add_count_before(free, -queues[y].delta, x, k, y)
            free.at_least(self.problem, 0)

    def _add_work_before(self, expression: Linear, sign: int, x: int, k: int, on: list[int]) -> None:
        expression.constant += sign * k * self.queues.queues[x].duration
        for y in on:
            if y != x:
                weight = sign * self.queues.queues[y].duration
                self.variables.add_count_before(expression, weight, x, k, y)

    def _one_after_other(self, x: int, i: int, y: int, j: int, binary: Variable) -> None:
        """Add the big-M rows of item `i` of queue `x` and item `j` of queue `y`, one for each order."""
        first, second = self.queues.queues[x].duration, self.queues.queues[y].duration
        slack = self._slack(first, i, j)
        self._difference(i, j).plus(binary, -slack).at_least(self.problem, first - slack)
        self._difference(j, i).plus(binary, self._slack(second, j, i)).at_least(self.problem, second)

    def _slack(self, duration: int, i: int, j: int) -> int:
        """Return the big-M, in ticks, of the row "item i, of `duration` ticks, ends before item j starts"."""
        apart = max(self.early[j] - self.late[i], self.least[j] - self.most[i])
        return int(max(0, duration - apart))

    def _difference(self, i: int, j: int) -> Linear:
        return Linear().plus(self.start[j]).plus(self.start[i], -1)

    def _after(self, i: int, j: int, least: int) -> None:
        self._difference(i, j).at_least(self.problem, least)


def minimise_cost(problem: pulp.LpProblem, queues: Queues, variables: Variables) -> None:
    """Minimise the cost, with rows ``b <= s_i`` and ``s_i + d_i <= b + cost`` on every device.

    The notation is that of `Constraints`. Only an F can come first on a device and only a W can come last, so
    only they need rows. With `device_span` each device has its own frame, and with `makespan` all devices
    share one frame. So under both objectives the cost is the length of the longest frame.
    """
    for queue, items in zip(queues.queues, map(variables.items, range(len(queues.queues))), strict=True):
        begin = variables.begin[variables.frame[queue.device]]
        if queue.kind is OpKind.F:
            Linear().plus(variables.start[items[0]]).plus(begin, -1).at_least(problem, 0)
        if queue.kind is OpKind.W:
            span = Linear().plus(begin).plus(variables.cost).plus(variables.start[items[-1]], -1)
            span.at_least(problem, queue.duration)
    problem.setObjective(pulp.LpAffineExpression([(variables.cost, 1)]))
