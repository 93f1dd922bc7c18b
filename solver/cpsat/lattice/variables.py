"""Variables: a start per item, a boolean per open pair, a frame per device, departures of messages."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.operation import OpKind

from ...orders import OpenOrders
from ...queues import Queues
from ...windows import Windows

Literal = cp_model.BoolVarT | bool


class Variables(OpenOrders):
    """The variables of the lattice model, and the linear expressions that constraints speak of.

    Parameters
    ----------
    model
        Receives the variables.
    queues
        The problem.
    windows
        What is decided already: no variable is made for it.
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
        """Return the literal of "the k-th of queue x runs before the rank-th of queue y"."""
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
        """Return how many elements of queue y run before the k-th of queue x."""
        ranks = self.open_ranks(self.first[x] + k, y)
        return ranks.start + sum(self.precedes(y, rank, x, k) for rank in ranks)

    def add_hint(self, model: cp_model.CpModel, start: list[int]) -> None:
        """Hint all variables with the start times of a feasible schedule, per item."""
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
        """Times run from the start of the anchor's frame."""
        earliest, latest = self.windows.earliest.tolist(), self.windows.latest.tolist()
        return [
            model.new_int_var(earliest[i], latest[i], f"s{q}.{i - self.first[q]}")
            for q in range(len(self.queues))
            for i in self.items(q)
        ]

    def _frame(self, model: cp_model.CpModel, device: int) -> cp_model.IntVar | int:
        """Return when the frame of `device` starts: with its first F, whose queue may be open."""
        if not self.windows.floating:
            return 0
        heads = [q for q in self.on[device] if self.queues[q].kind is OpKind.F]
        for x in heads:
            if all(self.precedes(x, 0, y, 0) is True for y in heads if y != x):
                return self.start[self.first[x]]
        earliest, latest = (int(frames[device]) for frames in self.windows.frames)
        return self._open_frames.setdefault(device, model.new_int_var(earliest, latest, f"frame{device}"))

    def _departures(self, model: cp_model.CpModel) -> dict[int, cp_model.IntVar]:
        """Return when the message of each item leaves, for the links on which one may have to wait."""
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
