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
        origin = int(schedule.start.min())
        for device, operations in enumerate(schedule.order.to_lists()):
            times = (schedule.start[schedule.order.rows(device)] - origin).tolist()
            begin = 0 if self.instance.whole else times[0]
            self.model.add_hint(self.variables.begin[device], begin)
            ends = (schedule.end[schedule.order.rows(device)] - origin).tolist()
            for op, time, end in zip(operations, times, ends, strict=True):
                self._hint_operation(op, time, end)
        self._hint_links(schedule, origin)
        self.model.add_hint(self.cost, cost)

    def _hint_operation(self, op: Operation, start: int, end: int) -> None:
        backward, weight = (op._replace(kind=kind) for kind in (OpKind.B, OpKind.W))
        if op.kind is OpKind.BW:
            self.model.add_hint(self.variables.start[backward], start)
            took = self.instance.duration(OpKind.W, op.stage)
            self.model.add_hint(self.variables.start[weight], end - took)
            self.model.add_hint(self.variables.fused[backward], True)
            return
        self.model.add_hint(self.variables.start[op], start)
        if op.kind is OpKind.B and op in self.variables.fused:
            self.model.add_hint(self.variables.fused[op], False)

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
        at = dict(zip(self.variables.start, start, strict=True))
        devices: list[list[tuple[int, Operation]]] = [[] for _ in range(self.instance.devices)]
        for op, time in at.items():
            backward = op._replace(kind=OpKind.B)
            # a W that starts before its B could have ended alone is part of a fused backward
            fused = op in self.variables.fused and at[op._replace(kind=OpKind.W)] < (
                at[backward] + self.instance.duration(OpKind.B, op.stage)
            )
            if not fused or op.kind is OpKind.B:
                named = op._replace(kind=OpKind.BW) if fused else op
                devices[self.instance.device(op.stage, op.microbatch)].append((time, named))
        return Order.from_lists([[op for _, op in sorted(device)] for device in devices])
