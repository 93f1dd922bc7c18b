"""The lattice model: start times of items, and booleans for the orders that the windows leave open.

This is the start-time model of a job shop, whose order booleans here form a distributive *lattice*. Two
queues x and y of one device interleave along a monotone staircase: "the k-th item of x before the l-th item
of y" implies the same for every smaller k and every larger l.

It knows every rule. A joint operation is a sequence of neighbouring items with shorter times
(`lattice_variables.Joint`), so it stands on the staircase where its items would stand.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from tightpipe.model.metrics import largest_work
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order, Schedule
from tightpipe.model.simulate import retime
from tightpipe.params.solve_params import DEFAULTS

from ..queues import Queues
from ..windows import Windows
from .lattice_variables import Variables


class Constraints:
    """Adds the constraints of the model, one method for each family.

    `queues` defines items, queues and pools; `windows.windows` defines frames and windows.
    The `cost` is the largest length of a frame: the variable that is minimised, or the horizon in ticks.
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
        self.reductions()
        self.work()
        self.idle_time()

    def sequence(self) -> None:
        """Require that the items of a queue run one after another."""
        for q in range(len(self.queues.queues)):
            for i, j in pairwise(self.variables.items(q)):
                self.model.add(self.start[j] >= self.variables.end[i])

    def precedence(self) -> None:
        """Require that an item starts after the result of the item that it waits for, plus communication.

        A W may be in a joint operation with the B of its own rank, but not start before that B.
        """
        v = self.variables
        for q, r, lag in self.queues.precedences():
            own = v.joint.weight.get(q) == r
            for i, j in zip(v.items(q), v.items(r), strict=True):
                self._waits(j, (v.end[i] if own else v.result[i]) + lag)

    def busy_links(self) -> None:
        """Require that messages leave one after another, on each link where a message may have to wait.

        A message leaves no earlier than its item ends, and at least one link occupancy after the previous
        message on the link. The receiving item starts after the message has arrived.
        """
        v, busy = self.variables, self.variables.occupancy
        for link in v.links:
            for q, r, lag in link:
                for i, j in zip(v.items(q), v.items(r), strict=True):
                    self.model.add(v.departure[i] >= v.result[i])
                    self._waits(j, v.departure[i] + lag)
                for i, j in pairwise(v.items(q)):
                    self.model.add(v.departure[j] >= v.departure[i] + busy)
            for (x, _, _), (y, _, _) in combinations(link, 2):
                self._in_turn(x, y, v.departure.__getitem__, lambda i: v.departure[i] + busy)

    def order_in_time(self) -> None:
        """Require that of two items of a device in different queues one ends before the other starts."""
        for x, y in self.variables.pairs():
            self._in_turn(x, y, self.start.__getitem__, self.variables.end.__getitem__)

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
            items = [i for q in on for i in self.variables.items(q)]
            self.model.add_no_overlap([interval for i in items for interval in self._intervals(i)])

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
        passing = self.variables.windows.arrays.graph.queues["passing"].tolist()
        for device, on in enumerate(self.variables.on):
            limit = self.queues.instance.memory_limit(device)
            if limit is None:
                continue
            for x in on:
                if self.queues.queues[x].delta > 0 or passing[x]:
                    self._memory_at(x, on, limit - passing[x])

    def spans(self) -> None:
        """Require that every F of a device starts, and every item ends, within the device's frame.

        After an item may come a reduction and the device's optimizer, which lie in the frame, too.
        """
        for device, on in enumerate(self.variables.on):
            frame, latest = self.variables.frame[device], self.variables.windows.arrays.tail.tolist()
            for q in on:
                items, queue = self.variables.items(q), self.queues.queues[q]
                if queue.kind is OpKind.F:
                    self.model.add(self.start[items[0]] >= frame)
                if queue.kind is not OpKind.B or q not in self.variables.joint.weight:
                    self.model.add(self.variables.end[items[-1]] + latest[q] <= frame + self.cost)

    def reductions(self) -> None:
        """Require that a device reduces its stages one after another, and runs its optimizer after that."""
        v, optimizer = self.variables, self.variables.windows.arrays.graph.devices["optimizer"].tolist()
        for device, reductions in v.reduction.items():
            for begin, ticks, ends in reductions:
                for q in ends:
                    self.model.add(begin >= v.end[v.items(q)[-1]])
                self.model.add(begin + ticks + optimizer[device] <= self.cost)
            self.model.add_no_overlap(
                [self.model.new_fixed_size_interval_var(begin, ticks, "") for begin, ticks, _ in reductions]
            )

    def work(self) -> None:
        """Require that a device has time for what its items take in their modes, more than cut times.

        So few backwards are split, and few pairs left out.
        """
        v = self.variables
        for device, on in enumerate(v.on):
            more = [
                (mode.size - v.joint.cut[q]) * mode.literal
                for q in on
                for i in v.items(q)
                for mode in v.joint.modes.get(i, ())
                if mode.size > v.joint.cut[q]
            ]
            if more:
                self.model.add(sum(more) <= self.cost - v.windows.horizon + v.idle[device])

    def idle_time(self) -> None:
        """Require that a device idles from 0 to `cost` - work ticks between the start of its frame and an F.

        The rest of the time before the F is the work that precedes it. Once all order booleans are fixed,
        these constraints are implied by `no_overlap` and `spans`. While some are open, they bound the start
        of each F by the work that is already known to precede it. B's and W's get no such constraints, which
        would take more time than they save. What an item takes more than its cut time counts as idle.
        """
        for device, on in enumerate(self.variables.on):
            durations = {q: self.variables.joint.cut[q] for q in on}
            idle = self.cost - self.variables.windows.horizon + self.variables.idle[device]
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
            held = (k + 1) * queues[x].delta + others
            if not isinstance(held, int):
                self.model.add(held <= limit)
            elif held > limit:  # windows do not know memory that is held only while an F runs
                self.model.add_bool_or([])

    def _waits(self, j: int, result: cp_model.LinearExprT) -> None:
        """Require that an item, or the F before it in a pair, starts no earlier than a result is there."""
        joint = self.variables.joint
        self.model.add(self.start[j] >= result)
        for mode, forward in joint.behind(j):
            self.model.add(self.start[j] - forward >= result).only_enforce_if(mode)

    def _intervals(self, i: int) -> list[cp_model.IntervalVar]:
        """Return an interval for each size that an item may have."""
        modes = self.variables.joint.modes.get(i, [])
        if len({mode.size for mode in modes}) < 2:
            size = modes[0].size if modes else self.queues.queues[self.variables.joint.queue[i]].duration
            return [self.model.new_fixed_size_interval_var(self.start[i], size, f"i{i}")]
        return [
            self.model.new_optional_fixed_size_interval_var(
                self.start[i], mode.size, mode.literal, f"i{i}.{k}"
            )
            for k, mode in enumerate(modes)
        ]

    def _in_turn(
        self,
        x: int,
        y: int,
        time: Callable[[int], cp_model.LinearExprT],
        after: Callable[[int], cp_model.LinearExprT],
    ) -> None:
        """Require that the times of the items of queues x and y agree with the order booleans.

        The time of the later one of two items is no earlier than the time `after` the earlier one.
        """
        v = self.variables
        for k, i in enumerate(v.items(x)):
            ranks = v.open_ranks(i, y)
            if ranks.start > 0:
                self.model.add(time(i) >= after(v.first[y] + ranks.start - 1))
            if ranks.stop < len(v.items(y)):
                self.model.add(time(v.first[y] + ranks.stop) >= after(i))
            for rank in ranks:
                literal, j = v.precedes(x, k, y, rank), v.first[y] + rank
                self.model.add(time(j) >= after(i)).only_enforce_if(literal)
                self.model.add(time(i) >= after(j)).only_enforce_if(~literal)


class LatticeModel:
    """A CP-SAT model whose solutions are the schedules of cost at most a horizon.

    The horizon is that of feasible windows. Without `minimise`, any schedule within it is a solution. CP-SAT
    reasons about precedences if the busiest device may idle for a longer share of it than `much_idle`.
    """

    def __init__(
        self,
        queues: Queues,
        windows: Windows,
        lower_bound: int,
        *,
        minimise: bool = True,
        much_idle: float = DEFAULTS.cpsat.much_idle,
    ) -> None:
        self.queues, self.instance, self.horizon = queues, queues.instance, windows.horizon
        # If devices may idle little, the rows of `idle_time` tie the start of an F to the items before it. A
        # search without CP-SAT's own reasoning about these predecessors then takes half of the time. If
        # devices may idle much, a search without that reasoning has ten times as many conflicts.
        idle = windows.horizon - largest_work(queues.instance)
        self.with_precedences = idle > much_idle * windows.horizon
        self.presolved = False
        self.model = cp_model.CpModel()
        self.variables = Variables(self.model, queues, windows)
        self.cost = self.model.new_int_var(lower_bound, windows.horizon, "cost")
        if minimise:
            self.model.minimize(self.cost)
        most = self.cost if minimise else windows.horizon
        Constraints(self.model, queues, self.variables, most).add_constraints()

    def add_hint(self, schedule: Schedule, cost: int) -> None:
        """Hint a schedule whose queues run first in, first out, and its cost, perhaps above the horizon."""
        self.variables.add_hint(self.model, schedule)
        self.model.add_hint(self.cost, cost)

    @property
    def decisions(self) -> list[cp_model.LinearExpr]:
        """The variables from whose values `order` reads a solution."""
        return self.variables.decisions

    def order(self, values: list[int]) -> Order:
        """Return the order of a solution, given the values of `decisions`."""
        return self.variables.order(values)

    def schedule(self, values: list[int]) -> Schedule:
        """Return the schedule of a solution, with the best times for its order."""
        return retime(self.instance, self.order(values))
