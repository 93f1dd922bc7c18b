"""The mixed-integer model: start times, and a binary for each order of items that the windows leave open.

Where items may run jointly, their durations are sums with the binaries for that (`Joint`).

References
----------
Qi et al., arXiv:2401.10241, appendix, use binaries for orders with big-M rows, for one stage per device.
Here, in addition, the items of a queue run in a fixed sequence, so the binaries of two queues are monotone in
both ranks. The big-M of each row comes from windows of schedules that cost at most as much as a known one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pulp

from tightpipe.model.costs import Objective
from tightpipe.model.graph import graph_of
from tightpipe.model.operation import FUSED, PAIRED, SINGLE, OpKind
from tightpipe.model.schedule import Order, Schedule

from ..queues import Queues, Tokens, order_of_tokens
from ..windows import Windows
from .variables import Linear, Variable, Variables, items_of, takes_memory


class Constraints:
    """Adds the constraints of the model, one method for each family.

    `queues` defines items and queues; `windows.windows` defines frames and the horizon. The notation is: s_i
    is the start and d_i the duration of item i, b is the start of its device's frame, and o_ij is 1 if i runs
    before j, else 0. The windows say that s_i lies between e_i and l_i, and s_i - b between h_i and m_i.
    """

    def __init__(self, problem: pulp.LpProblem, queues: Queues, variables: Variables) -> None:
        self.problem, self.queues, self.variables = problem, queues, variables
        self.start, self.begin, self.joint = variables.start, variables.begin, variables.joint
        self.early, self.late = variables.windows.earliest.tolist(), variables.windows.latest.tolist()
        self.least, self.most = (times.tolist() for times in variables.windows.from_frame())
        self.took = variables.windows.arrays.graph.queues["duration"].tolist()
        self.optimizer = graph_of(queues.instance).optimizer

    def add_constraints(self) -> None:
        """Add the constraints of all families."""
        self.sequence()
        self.precedence()
        self.windows()
        self.order_in_time()
        self.lattice()
        self.work()
        self.weight_after_backward()
        self.fused()
        self.paired()
        self.memory()

    def sequence(self) -> None:
        """Require that the items of a queue run one after another."""
        for q in range(len(self.queues.queues)):
            for i, j in pairwise(self.variables.items(q)):
                self._after(q, i, j)

    def precedence(self) -> None:
        """Require that an item starts after the item that it waits for, plus communication."""
        for q, r, lag in self.queues.precedences():
            for i, j in zip(self.variables.items(q), self.variables.items(r), strict=True):
                self._after(q, i, j, lag)

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
                self._after(y, v.first[y] + ranks.start - 1, i)
            if ranks.stop < len(v.items(y)):
                self._after(x, i, v.first[y] + ranks.stop)
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
        ignore the device's work. What items count that may run jointly is said in `Joint`.
        """
        v, joint = self.variables, self.joint
        for device, on in enumerate(v.on):
            begin = self.begin[v.frame[device]]
            total = self.optimizer[device] + sum(joint.after[q] * len(v.items(q)) for q in on)
            weights = [q for q in on if self.queues.queues[q].kind is OpKind.W]
            void = [(u, -ticks) for q in weights for i in v.items(q) for u, ticks in joint.longer[i]]
            for x in on:
                for k, i in enumerate(v.items(x)):
                    since = Linear().plus(self.start[i]).plus(begin, -1).add(joint.saved[device])
                    until = Linear().plus(self.start[i], -1).plus(begin).plus(v.cost).add(joint.saved[device])
                    self._add_work_before(since, -1, x, k, on)
                    self._add_work_before(until, 1, x, k, on)
                    if x not in weights:
                        until.add(joint.longer[i], -1)
                    since.at_least(self.problem, 0)
                    own = self.queues.queues[x].duration - joint.after[x]
                    until.add(void).at_least(self.problem, total + own)

    def weight_after_backward(self) -> None:
        """Require at least k + 1 B's of a pool's stages before its W of rank k; `queues` defines pools."""
        for q, queue in enumerate(self.queues.queues):
            if queue.kind is OpKind.W and len(queue.members) > 1:
                for k in range(queue.count):
                    ready = Linear()
                    for y in self.queues.backwards_of(q):
                        self.variables.add_count_before(ready, 1, q, k, y)
                    ready.at_least(self.problem, k + 1)

    def fused(self) -> None:
        """Let void W's free their memory before an item only if their B's are fused, and run before it."""
        v, joint = self.variables, self.joint
        for (b, i), freed in joint.freed.items():
            Linear().plus(joint.fused[b]).plus(freed, -1).at_least(self.problem, 0)
            between = Linear().plus(freed, -1)
            for j, sign in ((b, 1), (joint.weight[b], -1)):
                v.add_before(between, sign, *v.place(i), *v.place(j))
            between.at_least(self.problem, 0)

    def paired(self) -> None:
        """Require that a pair's F and B start together, with the B fused; no item is in two pairs."""
        v, horizon = self.variables, self.variables.windows.horizon
        pairs_of: dict[int, list[tuple[Variable, int]]] = {}
        for (i, j), pair in self.joint.pairs.items():
            self._difference(j, i).plus(pair, -horizon).at_least(self.problem, -horizon)
            first = v.precedes(*v.place(i), *v.place(j))
            Linear().plus(first).plus(pair, -1).at_least(self.problem, 0)
            for item in (i, j):
                pairs_of.setdefault(item, []).append((pair, -1))
        for item, pairs in pairs_of.items():
            fused = self.joint.fused.get(item)
            one = Linear(1) if fused is None else Linear().plus(fused)
            one.add(pairs).at_least(self.problem, 0)

    def memory(self) -> None:
        """Require that each device's memory is within its limit when an item that takes memory starts."""
        for device, on in enumerate(self.variables.on):
            limit = self.queues.instance.memory_limit(device)
            if limit is None:
                continue
            for x in on:
                if takes_memory(self.queues, x):
                    self._memory_at(x, on, limit)

    def _memory_at(self, x: int, on: list[int], limit: int) -> None:
        queues = self.queues.queues
        room = limit - int(self.queues.arrays.queues["passing"][x])
        for k, i in enumerate(self.variables.items(x)):
            free = Linear(room - (k + 1) * queues[x].delta).add(self.joint.freeing[i])
            for y in on:
                if y != x:
                    self.variables.add_count_before(free, -queues[y].delta, x, k, y)
            free.at_least(self.problem, 0)

    def _add_work_before(self, expression: Linear, sign: int, x: int, k: int, on: list[int]) -> None:
        ticks = self.joint.before if sign < 0 else self.joint.after
        expression.constant += sign * k * ticks[x]
        for y in on:
            if y != x:
                self.variables.add_count_before(expression, sign * ticks[y], x, k, y)

    def _one_after_other(self, x: int, i: int, y: int, j: int, binary: Variable) -> None:
        """Add the big-M rows of item `i` of queue `x` and item `j` of queue `y`, one for each order."""
        slack = self._slack(self.took[x], i, j)
        row = self._difference(i, j).plus(binary, -slack).add(self.joint.longer[i], -1)
        if (i, j) in self.joint.pairs:  # together, and not one after the other
            row.plus(self.joint.pairs[i, j], graph_of(self.queues.instance).pairs[x, y])
        row.at_least(self.problem, self.queues.queues[x].duration - slack)
        row = self._difference(j, i).plus(binary, self._slack(self.took[y], j, i))
        row.add(self.joint.longer[j], -1).at_least(self.problem, self.queues.queues[y].duration)

    def _slack(self, duration: int, i: int, j: int) -> int:
        """Return the big-M, in ticks, of the row "item i, of `duration` ticks, ends before item j starts"."""
        apart = max(self.early[j] - self.late[i], self.least[j] - self.most[i])
        return int(max(0, duration - apart))

    def _difference(self, i: int, j: int) -> Linear:
        return Linear().plus(self.start[j]).plus(self.start[i], -1)

    def _after(self, q: int, i: int, j: int, lag: int = 0) -> None:
        """Require that item j starts at least `lag` ticks after the end of item i of queue q."""
        row = self._difference(i, j).add(self.joint.longer[i], -1)
        row.at_least(self.problem, self.queues.queues[q].duration + lag)


def minimise_cost(problem: pulp.LpProblem, queues: Queues, variables: Variables) -> None:
    """Minimise the cost, with rows ``b <= s_i`` and ``s_i + d_i + optimizer <= b + cost`` on every device.

    The notation is that of `Constraints`. Only an F can come first on a device. With `device_span` each
    device has its own frame, and else all devices share one frame. So under every objective the cost is the
    length of the longest frame.
    """
    optimizer = graph_of(queues.instance).optimizer
    for queue, items in zip(queues.queues, map(variables.items, range(len(queues.queues))), strict=True):
        begin = variables.begin[variables.frame[queue.device]]
        if queue.kind is OpKind.F:
            Linear().plus(variables.start[items[0]]).plus(begin, -1).at_least(problem, 0)
        span = Linear().plus(begin).plus(variables.cost).plus(variables.start[items[-1]], -1)
        span.add(variables.joint.longer[items[-1]], -1)
        span.at_least(problem, queue.duration + optimizer[queue.device])
    problem.setObjective(pulp.LpAffineExpression([(variables.cost, 1)]))


class Reductions:
    """The reductions of stages: a device runs one at a time between their last items and its optimizer."""

    def __init__(self, problem: pulp.LpProblem, queues: Queues, variables: Variables) -> None:
        self._variables, horizon = variables, variables.windows.horizon
        self._last: dict[tuple[int, int], list[int]] = {}  # by device and stage: the last item of each class
        for q, stage in enumerate(queues.arrays.queues["ends"].tolist()):
            if stage >= 0:
                self._last.setdefault((queues.queues[q].device, stage), []).append(variables.items(q)[-1])
        step = queues.instance.barrier
        self._ticks = {place: step.reduce[place[1]] for place in self._last}  # type: ignore[index, union-attr]
        self._begin = {
            place: problem.add_variable(f"r{place[0]}_{place[1]}", 0, horizon) for place in self._last
        }
        for place, items in self._last.items():
            begin, after = self._begin[place], graph_of(queues.instance).optimizer[place[0]]
            Linear().plus(variables.cost).plus(begin, -1).at_least(problem, self._ticks[place] + after)
            for i in items:
                took = queues.queues[int(queues.arrays.queue[i])].duration
                row = Linear().plus(begin).plus(variables.start[i], -1)
                row.add(variables.joint.longer[i], -1).at_least(problem, took)
        self._first: dict[tuple[tuple[int, int], tuple[int, int]], Variable] = {}
        for one, other in combinations(self._begin, 2):
            if one[0] == other[0]:
                name = f"q{one[0]}_{one[1]}_{other[1]}"
                self._first[one, other] = first = problem.add_variable(name, 0, 1, cat="Integer")
                apart = Linear().plus(self._begin[other]).plus(self._begin[one], -1).plus(first, -horizon)
                apart.at_least(problem, self._ticks[one] - horizon)
                apart = Linear().plus(self._begin[one]).plus(self._begin[other], -1).plus(first, horizon)
                apart.at_least(problem, self._ticks[other])

    def set_start(self, end: list[int]) -> None:
        """Set the initial values from the ends of all items: stages are reduced as they end."""
        ended = {place: max(end[i] for i in items) for place, items in self._last.items()}
        free: dict[int, int] = {}
        for place in sorted(ended, key=lambda place: (ended[place], place)):
            begin = max(ended[place], free.get(place[0], 0))
            self._begin[place].setInitialValue(begin)
            free[place[0]] = begin + self._ticks[place]
        for (one, other), first in self._first.items():
            first.setInitialValue(int((ended[one], one) < (ended[other], other)))


Value = Callable[[Variable], float]


class MilpModel:
    """A PuLP model of the schedules of cost at most the horizon of feasible windows; it minimises it."""

    def __init__(self, queues: Queues, windows: Windows, lower_bound: int) -> None:
        self.queues, self.instance = queues, queues.instance
        self.problem = pulp.LpProblem("tightpipe", pulp.LpMinimize)
        self.variables = Variables(self.problem, queues, windows, lower_bound)
        Constraints(self.problem, queues, self.variables).add_constraints()
        minimise_cost(self.problem, queues, self.variables)
        self._reductions = Reductions(self.problem, queues, self.variables)

    def set_start(self, schedule: Schedule, cost: int) -> None:
        """Start the search from a schedule of this cost with microbatches first in, first out."""
        v = self.variables
        found = items_of(self.queues, schedule)
        begin, origin = [0] * len(v.begin), 0  # a step begins at tick 0
        if self.instance.objective is not Objective.STEP:
            begin = [int(schedule.start.max())] * len(v.begin)
            for on, frame in zip(v.on, v.frame, strict=True):
                begin[frame] = min(begin[frame], *(found.start[v.first[q]] for q in on))
            origin = v.windows.origin(found.start)
        found = found.since(origin)
        v.set_start(found, [time - origin for time in begin], cost)
        self._reductions.set_start(found.end)

    def order(self, value: Value) -> Order:
        """Return a solution's order: an item's position is how many items the binaries put before it."""
        joint, queue_of = self.variables.joint, self.queues.arrays.queue
        fused = {i: joint.weight[i] for i, one in joint.fused.items() if value(one) > 0.5}
        paired = {i for (i, _), one in joint.pairs.items() if value(one) > 0.5}
        void, items, joined, offsets = set(fused.values()), list[int](), list[int](), [0]
        for on in self.variables.on:
            for i in self._sequence(on, value):
                if i in fused:
                    items += [i, fused[i]]
                    joined += [FUSED, SINGLE]
                elif i not in void:
                    items.append(i)
                    joined.append(PAIRED if i in paired else SINGLE)
            offsets.append(len(items))
        return order_of_tokens(self.queues, Tokens(queue_of[items], np.array(joined), np.array(offsets)))

    def _sequence(self, on: list[int], value: Value) -> list[int]:
        v = self.variables
        position = {i: k for q in on for k, i in enumerate(v.items(q))}
        for x in on:
            for y in on:
                if x < y:
                    self._count_pairs(x, y, value, position)
        return sorted(position, key=lambda i: (position[i], i))

    def _count_pairs(self, x: int, y: int, value: Value, position: dict[int, int]) -> None:
        """Add to the position of each item of queue x the number of items of y before it, and vice versa."""
        v = self.variables
        for k, i in enumerate(v.items(x)):
            ranks = v.open_ranks(i, y)
            open_before = [value(o) > 0.5 for o in v.order[x, y, k]]
            for rank, j in enumerate(v.items(y)):
                first = rank >= ranks.stop or (rank in ranks and open_before[rank - ranks.start])
                position[j if first else i] += 1
