"""The mixed-integer model: start times, and a binary for each order of items that the windows leave open.

References
----------
Qi et al., arXiv:2401.10241, appendix, use binaries for orders with big-M rows, for one stage per device.
Here, in addition, the items of a queue run in a fixed sequence, so the binaries of two queues are monotone in
both ranks. The big-M of each row comes from windows of schedules that cost at most as much as a known one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pulp

from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order, Schedule

from ..queues import Queues, Word, order_of_words, starts_of
from ..windows import Windows
from ..windows.windows import OpenOrders

Variable = Any  # a pulp.LpVariable: PuLP has no types


@dataclass(slots=True)
class Linear:
    """The expression ``constant + sum(coefficient * variable)``, to which terms are added in place.

    Parameters
    ----------
    constant
        The constant term.
    terms
        Pairs (variable, coefficient), at most one for each variable.
    """

    constant: int = 0
    terms: list[tuple[Variable, int]] = field(default_factory=list)

    def plus(self, variable: Variable, coefficient: int = 1) -> Linear:
        """Add a term to the expression, and return the expression."""
        self.terms.append((variable, coefficient))
        return self

    def at_least(self, problem: pulp.LpProblem, least: int) -> None:
        """Add the row ``expression >= least`` to a problem, unless the expression has no variables."""
        if self.terms:
            sense = pulp.LpConstraintGE
            expression = pulp.LpAffineExpression(self.terms)
            problem.addConstraint(pulp.LpConstraint(expression, sense, rhs=least - self.constant))


class Variables(OpenOrders):
    """The variables of the model, and linear expressions of them that several constraints need.

    Only the cost and the binaries for orders have to be integers. With these fixed, the start times satisfy a
    system of difference constraints with integer data, which has an integer solution if it has any solution.

    Parameters
    ----------
    problem
        The PuLP problem that receives the variables.
    queues
        The queues of the instance.
    windows
        Feasible windows. The order of two items needs no binary if the windows decide it.
    lower_bound
        A proven bound of the cost, in ticks.

    Attributes
    ----------
    frame
        For each device, the index of its frame in `begin`.
    cost, begin, start
        The cost, the start of each frame, and the start of each item.
    order
        For queues x < y of a device and the item of rank k in x: a binary for each item of y with open order.
    """

    def __init__(self, problem: pulp.LpProblem, queues: Queues, windows: Windows, lower_bound: int) -> None:
        super().__init__(queues, windows)
        self.frame = list(range(len(self.on))) if windows.floating else [0] * len(self.on)
        self.cost = problem.add_variable("cost", lower_bound, windows.horizon, cat="Integer")
        self.begin = self._begins(problem)
        self.start = self._starts(problem)
        self.order = self._orders(problem)

    def precedes(self, x: int, k: int, y: int, rank: int) -> Variable:
        """Return the binary "the item of rank k in queue x runs before the item of rank `rank` in queue y".

        The order of these two items has to be open, and x has to be less than y.
        """
        return self.order[x, y, k][rank - self.open_ranks(self.first[x] + k, y).start]

    def add_count_before(self, expression: Linear, weight: int, x: int, k: int, y: int) -> None:
        """Add to a linear expression, in place, a number of items times `weight`.

        The number is that of the items of queue y that run before the item of rank k in queue x.
        """
        ranks = self.open_ranks(self.first[x] + k, y)
        expression.constant += weight * ranks.start
        if x > y:
            for rank in ranks:
                expression.plus(self.precedes(y, rank, x, k), weight)
        else:
            expression.constant += weight * len(ranks)
            for rank in ranks:
                expression.plus(self.precedes(x, k, y, rank), -weight)

    def set_start(self, start: list[int], begin: list[int], cost: int) -> None:
        """Set the initial value of every variable (the MIP start) from a schedule.

        The items of the schedule start at the ticks `start`, and its frames at the ticks `begin`. The cost of
        the schedule is `cost` ticks.
        """
        self.cost.setInitialValue(cost)
        for frame, time in zip(self.begin, begin, strict=True):
            frame.setInitialValue(time)
        for var, time in zip(self.start, start, strict=True):
            var.setInitialValue(time)
        for (x, y, k), binaries in self.order.items():
            i = self.first[x] + k
            for rank, binary in zip(self.open_ranks(i, y), binaries, strict=True):
                binary.setInitialValue(int(start[i] < start[self.first[y] + rank]))

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


Value = Callable[[Variable], float]


class MilpModel:
    """A PuLP model whose solutions are the schedules of cost at most a horizon; it minimises the cost.

    Parameters
    ----------
    queues
        The queues of the instance.
    windows
        Feasible windows, for the same horizon.
    lower_bound
        A proven bound of the cost, in ticks.
    """

    def __init__(self, queues: Queues, windows: Windows, lower_bound: int) -> None:
        self.queues, self.instance = queues, queues.instance
        self.problem = pulp.LpProblem("tightpipe", pulp.LpMinimize)
        self.variables = Variables(self.problem, queues, windows, lower_bound)
        Constraints(self.problem, queues, self.variables).add_constraints()
        minimise_cost(self.problem, queues, self.variables)

    def set_start(self, schedule: Schedule, cost: int) -> None:
        """Start the search from a schedule with split backwards and microbatches first in, first out.

        `cost` is the cost of the schedule in ticks.
        """
        v = self.variables
        start = starts_of(self.queues, schedule)
        begin = [int(schedule.start.max())] * len(v.begin)
        for on, frame in zip(v.on, v.frame, strict=True):
            begin[frame] = min(begin[frame], *(start[v.first[q]] for q in on))
        origin = v.windows.origin(start)
        v.set_start([time - origin for time in start], [time - origin for time in begin], cost)

    def order(self, value: Value) -> Order:
        """Return the order that the binaries of a solution describe; its start times are not used.

        The position of an item on its device is the number of items that the binaries put before it.
        """
        return order_of_words(self.queues, [self._word(on, value) for on in self.variables.on])

    def _word(self, on: list[int], value: Value) -> Word:
        v = self.variables
        position = {i: k for q in on for k, i in enumerate(v.items(q))}
        for x in on:
            for y in on:
                if x < y:
                    self._count_pairs(x, y, value, position)
        queue_of = {i: q for q in on for i in v.items(q)}
        return [queue_of[i] for i in sorted(position, key=lambda i: (position[i], i))]

    def _count_pairs(self, x: int, y: int, value: Value, position: dict[int, int]) -> None:
        """Add to the position of each item of queue x the number of items of y before it, and vice versa."""
        v = self.variables
        for k, i in enumerate(v.items(x)):
            ranks = v.open_ranks(i, y)
            open_before = [value(o) > 0.5 for o in v.order[x, y, k]]
            for rank, j in enumerate(v.items(y)):
                first = rank >= ranks.stop or (rank in ranks and open_before[rank - ranks.start])
                position[j if first else i] += 1
