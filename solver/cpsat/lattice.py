"""The lattice model: start times of items, and booleans for the orders that the windows leave open.

This is the start-time model of a job shop, whose order booleans here form a distributive *lattice*. Two
queues x and y of one device interleave along a monotone staircase: "the k-th item of x before the l-th item
of y" implies the same for every smaller k and every larger l.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from tightpipe.model.metrics import largest_work
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order, Schedule
from tightpipe.params.solve_params import DEFAULTS

from ..queues import Queues, Word, order_of_words, starts_of
from ..windows import Windows
from ..windows.windows import OpenOrders

Literal = cp_model.BoolVarT | bool


class Variables(OpenOrders):
    """The variables of the lattice model, and linear expressions that several constraints need.

    Parameters
    ----------
    model
        The CP-SAT model that receives the variables.
    queues
        The queues of the instance.
    windows
        Feasible windows. An order that they decide needs no variable.

    Attributes
    ----------
    start
        The start of each item.
    frame
        For each device, the start of its frame, which is a variable or 0.
    links
        The links on which a message may have to wait, as in `Queues.links`.
    occupancy
        The link occupancy of the instance, in ticks.
    departure
        For each item that sends over one of the links, the time at which its message leaves.
    """

    def __init__(self, model: cp_model.CpModel, queues: Queues, windows: Windows) -> None:
        super().__init__(queues, windows)
        self.start = self._starts(model)
        self._order = self._orders(model)
        self._open_frames: dict[int, cp_model.IntVar] = {}
        self.frame = [self._frame(model, device) for device in range(len(self.on))]
        self.links = queues.links()
        self.occupancy = queues.instance.costs.link_occupancy
        self.departure = self._departures(model)

    def precedes(self, x: int, k: int, y: int, rank: int) -> Literal:
        """Return the literal "the item of rank k in queue x runs before the item of rank `rank` in queue y".

        The result is True or False if the windows decide the order.
        """
        if x > y:
            literal = self.precedes(y, rank, x, k)
            return (not literal) if isinstance(literal, bool) else ~literal
        ranks = self.open_ranks(self.first[x] + k, y)
        if rank < ranks.start:
            return False
        if rank >= ranks.stop:
            return True
        return self._order[x, y, k][rank - ranks.start]

    def count_before(self, x: int, k: int, y: int) -> cp_model.LinearExpr | int:
        """Return the number of items of queue y that run before the item of rank k in queue x."""
        ranks = self.open_ranks(self.first[x] + k, y)
        return ranks.start + sum(self.precedes(y, rank, x, k) for rank in ranks)

    def add_hint(self, model: cp_model.CpModel, start: list[int]) -> None:
        """Hint the value that each variable has in a schedule, given the start of each item in ticks."""
        for i, var in enumerate(self.start):
            model.add_hint(var, start[i])
        for (x, y, k), literals in self._order.items():
            i = self.first[x] + k
            for rank, literal in zip(self.open_ranks(i, y), literals, strict=True):
                model.add_hint(literal, start[i] < start[self.first[y] + rank])
        for device, frame in self._open_frames.items():
            model.add_hint(frame, min(start[self.first[q]] for q in self.on[device]))
        for link in self.links:
            leaves = -self.windows.horizon
            sent = [(start[i] + self.queues[q].duration, i) for q, _, _ in link for i in self.items(q)]
            for end, i in sorted(sent):
                leaves = max(end, leaves + self.occupancy)
                model.add_hint(self.departure[i], leaves)

    def _starts(self, model: cp_model.CpModel) -> list[cp_model.IntVar]:
        """Return a variable for the start of each item; times count from the start of the anchor's frame."""
        earliest, latest = self.windows.earliest.tolist(), self.windows.latest.tolist()
        return [
            model.new_int_var(earliest[i], latest[i], f"s{q}.{i - self.first[q]}")
            for q in range(len(self.queues))
            for i in self.items(q)
        ]

    def _frame(self, model: cp_model.CpModel, device: int) -> cp_model.IntVar | int:
        """Return when the frame of `device` starts, in ticks or as a variable.

        For `makespan` that is 0. For `device_span` the frame starts with the first F of the device. A new
        variable is needed only if the windows leave open which queue has that F.
        """
        if not self.windows.floating:
            return 0
        heads = [q for q in self.on[device] if self.queues[q].kind is OpKind.F]
        for x in heads:
            if all(self.precedes(x, 0, y, 0) is True for y in heads if y != x):
                return self.start[self.first[x]]
        earliest, latest = (int(frames[device]) for frames in self.windows.frames)
        return self._open_frames.setdefault(device, model.new_int_var(earliest, latest, f"frame{device}"))

    def _departures(self, model: cp_model.CpModel) -> dict[int, cp_model.IntVar]:
        """Return, by sending item, a variable for the departure of each message on the links in `links`."""
        return {
            i: model.new_int_var(
                self.start[i].proto.domain[0] + self.queues[q].duration,
                self.start[j].proto.domain[1] - lag,
                f"d{q}.{i - self.first[q]}",
            )
            for link in self.links
            for q, r, lag in link
            for i, j in zip(self.items(q), self.items(r), strict=True)
        }

    def _orders(self, model: cp_model.CpModel) -> dict[tuple[int, int, int], list[cp_model.IntVar]]:
        return {
            (x, y, k): [model.new_bool_var(f"o{x}.{k}<{y}.{rank}") for rank in self.open_ranks(i, y)]
            for x, y in self.pairs()
            for k, i in enumerate(self.items(x))
        }


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


class LatticeModel:
    """A CP-SAT model whose solutions are the schedules of cost at most a horizon.

    Parameters
    ----------
    queues
        The queues of the instance.
    windows
        Feasible windows; their horizon is also the horizon of the model.
    lower_bound
        A proven bound of the cost, in ticks.
    minimise
        Whether the model minimises the cost; otherwise any schedule within the horizon is a solution.
    much_idle
        Share of the horizon. CP-SAT reasons about precedences if the busiest device may idle longer.
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
        self.model = cp_model.CpModel()
        self.variables = Variables(self.model, queues, windows)
        self.cost = self.model.new_int_var(lower_bound, windows.horizon, "cost")
        if minimise:
            self.model.minimize(self.cost)
        most = self.cost if minimise else windows.horizon
        Constraints(self.model, queues, self.variables, most).add_constraints()

    def add_hint(self, schedule: Schedule, cost: int) -> None:
        """Give CP-SAT a schedule and its cost in ticks as a hint.

        The backwards of the schedule are split, and its queues run first in, first out. The schedule may cost
        more than the horizon.
        """
        start = starts_of(self.queues, schedule)
        origin = self.variables.windows.origin(start)
        self.variables.add_hint(self.model, [time - origin for time in start])
        self.model.add_hint(self.cost, cost)

    @property
    def start(self) -> list[cp_model.IntVar]:
        """The variables of the start times, in the sequence in which `order` expects their values."""
        return self.variables.start

    def order(self, start: list[int]) -> Order:
        """Return the order of the items, given their start times in ticks."""
        return order_of_words(self.queues, [self._word(on, start) for on in self.variables.on])

    def _word(self, on: list[int], start: list[int]) -> Word:
        return [q for _, q in sorted((start[i], q) for q in on for i in self.variables.items(q))]
