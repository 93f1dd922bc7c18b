"""The variables of the lattice model: starts of items and frames, order booleans, departures of messages."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.operation import OpKind

from ...orders import OpenOrders
from ...queues import Queues
from ...windows import Windows

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
