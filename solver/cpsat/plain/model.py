"""The *plain* model: start times and intervals of operations, whose memory CP-SAT tracks as reservoirs."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind
from tightpipe.core.schedule import Order, Schedule

from .constraints import Constraints
from .objective import bound_spans
from .variables import Variables


class PlainModel:
    """A CP-SAT model whose solutions are the schedules of cost at most a horizon; it minimises the cost.

    Parameters
    ----------
    instance
        The problem.
    horizon
        The cost of a known schedule, in ticks.
    lower_bound
        A proven bound of the cost, in ticks.
    fifo
        Whether to require that microbatches of one route run in sequence at every stage.

    Notes
    -----
    If each device has a span of its own, no time needs to exceed twice the horizon. The device that starts
    first ends within one horizon. Its last B of a microbatch follows the F's of that microbatch on all other
    devices. So every device starts within the first horizon, and ends within the second.
    """

    def __init__(self, instance: Instance, horizon: int, lower_bound: int, *, fifo: bool) -> None:
        self.instance, self.horizon = instance, horizon
        self.model = cp_model.CpModel()
        self.with_precedences = True
        latest = horizon if instance.whole else 2 * horizon
        self.variables = Variables(self.model, instance, latest)
        Constraints(self.model, instance, self.variables, fifo=fifo).add_constraints()
        self.cost = self.model.new_int_var(lower_bound, horizon, "cost")
        bound_spans(self.model, instance, self.variables, self.cost)
        self.model.minimize(self.cost)

    @property
    def start(self) -> list[cp_model.IntVar]:
        """The variables of the start times, in the sequence in which `order` expects their values."""
        return list(self.variables.start.values())

    def add_hint(self, schedule: Schedule, cost: int) -> None:
        """Hint a complete schedule, and its cost in ticks."""
        origin, joint = int(schedule.start.min()), self.variables.joint
        times, ends = (schedule.start - origin).tolist(), (schedule.end - origin).tolist()
        runs = schedule.order.to_slots()
        for device in range(self.instance.devices):
            begin = 0 if self.instance.whole else times[int(schedule.order.offsets[device])]
            self.model.add_hint(self.variables.begin[device], begin)
        operations = [op for device in schedule.order.to_lists() for op in device]
        for op, time, end in zip(operations, times, ends, strict=True):
            self._hint_operation(op, time, end)
        paired = {(f, bw[0]._replace(kind=OpKind.B)) for mine in runs for f, *bw in mine if bw}
        fused = {op._replace(kind=OpKind.B) for op in operations if op.kind is OpKind.BW}
        for pair, literal in joint.pairs.items():
            self.model.add_hint(literal, pair in paired)
        for b, literal in joint.fused.items():
            self.model.add_hint(literal, b in fused - {b for _, b in paired})
        self._hint_links(schedule, origin)
        self.model.add_hint(self.cost, cost)

    def _hint_operation(self, op: Operation, start: int, end: int) -> None:
        if op.kind is OpKind.BW:
            took = self.instance.duration(OpKind.W, op.stage)
            self.model.add_hint(self.variables.start[op._replace(kind=OpKind.W)], end - took)
            op = op._replace(kind=OpKind.B)
        self.model.add_hint(self.variables.start[op], start)

    def _hint_links(self, schedule: Schedule, origin: int) -> None:
        v, busy = self.variables, self.instance.costs.link_occupancy
        operations = [op for device in schedule.order.to_lists() for op in device]
        names = [op._replace(kind=OpKind.B) if op.kind is OpKind.BW else op for op in operations]
        end = dict(zip(names, (schedule.end - origin).tolist(), strict=True))
        for link in v.links:
            leaves = -busy
            for op in sorted(link, key=end.__getitem__):
                leaves = max(end[op], leaves + busy)
                self.model.add_hint(v.departure[op], leaves)
        for (first, second), literal in v.precedes.items():
            self.model.add_hint(literal, end[first] < end[second])

    def order(self, start: list[int]) -> Order:
        """Return the order of the operations, given their start times in ticks."""
        at, joint = dict(zip(self.variables.start, start, strict=True)), self.variables.joint
        partner = {b: f for f, b in joint.pairs if at[f] == at[b]}
        devices: list[list[tuple[int, tuple[Operation, ...]]]]
        devices = [[] for _ in range(self.instance.devices)]
        for op, time in at.items():
            b = op._replace(kind=OpKind.B)
            if op in partner.values() or (op.kind is OpKind.W and self._is_fused(b, at, partner)):
                continue
            run: tuple[Operation, ...] = (op,)
            if op.kind is OpKind.B and self._is_fused(op, at, partner):
                bw = op._replace(kind=OpKind.BW)
                run = (partner[op], bw) if op in partner else (bw,)
            devices[self.instance.device(op.stage, op.microbatch)].append((time, run))
        return Order.from_slots([[run for _, run in sorted(device)] for device in devices])

    def _is_fused(self, b: Operation, at: dict[Operation, int], paired: dict[Operation, Operation]) -> bool:
        """Return whether a B runs as a BW: in a pair, or as its W starts before the B alone could end."""
        if b in paired or b not in self.variables.joint.fused:
            return b in paired
        return at[b._replace(kind=OpKind.W)] < at[b] + self.instance.duration(OpKind.B, b.stage)
