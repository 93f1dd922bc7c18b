"""The constraints of the plain model, one method for each family."""

from __future__ import annotations

from itertools import pairwise

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind

from .variables import KINDS, Variables, receiver


class Constraints:
    """Adds the constraints of the model, one method for each family.

    Parameters
    ----------
    model
        The CP-SAT model that receives the constraints.
    instance
        The problem.
    variables
        The variables of the CP-SAT model.
    fifo
        Whether to require that microbatches of one route run in sequence at every stage.
    """

    def __init__(
        self, model: cp_model.CpModel, instance: Instance, variables: Variables, *, fifo: bool
    ) -> None:
        self.model, self.instance, self.fifo = model, instance, fifo
        self.variables, self.start, self.interval = variables, variables.start, variables.interval

    def add_constraints(self) -> None:
        """Add the constraints of all families."""
        self.forward_dependency()
        self.backward_dependency()
        self.weight_dependency()
        self.busy_links()
        self.no_overlap()
        self.memory()
        if self.fifo:
            self.first_in_first_out()

    def forward_dependency(self) -> None:
        """Require that F follows the F of the previous stage, after communication."""
        for m in range(self.instance.microbatches):
            for s in range(1, self.instance.stages):
                self._follows(Operation(OpKind.F, s - 1, m), Operation(OpKind.F, s, m))

    def backward_dependency(self) -> None:
        """Require that B follows the B of the next stage, and at the last stage the F of that stage."""
        last = self.instance.stages - 1
        for m in range(self.instance.microbatches):
            self._follows(Operation(OpKind.F, last, m), Operation(OpKind.B, last, m))
            for s in range(last):
                self._follows(Operation(OpKind.B, s + 1, m), Operation(OpKind.B, s, m))

    def weight_dependency(self) -> None:
        """Require that W follows its own B."""
        for m in range(self.instance.microbatches):
            for s in range(self.instance.stages):
                self._follows(Operation(OpKind.B, s, m), Operation(OpKind.W, s, m))

    def busy_links(self) -> None:
        """Require that messages on one link leave in the sequence of the operations that send them.

        They leave at least one link occupancy apart. A message leaves no earlier than its operation ends, and
        the receiving operation starts after the message has arrived.
        """
        departure = self.variables.departure
        for op, leaves in departure.items():
            self.model.add(leaves >= self.start[op] + self.instance.duration(op.kind, op.stage))
            after = receiver(self.instance, op)
            assert after is not None
            self.model.add(self.start[after] >= leaves + self._comm(op, after))
        for (first, second), literal in self.variables.precedes.items():
            self._leave_in_turn(first, second, literal)
            self._leave_in_turn(second, first, ~literal)

    def no_overlap(self) -> None:
        """Require that a device runs one operation at a time."""
        for device in range(self.instance.devices):
            self.model.add_no_overlap(self.interval[op] for op in self._on(device))

    def memory(self) -> None:
        """Require that the memory of a device is within its limit at every time."""
        for device in range(self.instance.devices):
            limit = self.instance.memory_limit(device)
            if limit is None:
                continue
            held = [op for op in self._on(device) if self._delta(op)]
            self.model.add_reservoir_constraint(
                [self._change_time(op) for op in held],
                [self._delta(op) for op in held],
                self._least(held),
                limit,
            )

    def first_in_first_out(self) -> None:
        """Require that, for every kind and stage, the microbatches of one route run in sequence."""
        for kind in KINDS:
            for s in range(self.instance.stages):
                took = self.instance.duration(kind, s)
                for m, following in pairwise(range(self.instance.microbatches)):
                    if self.instance.route(m) == self.instance.route(following):
                        first, second = Operation(kind, s, m), Operation(kind, s, following)
                        self.model.add(self.start[second] >= self.start[first] + took)

    def _follows(self, first: Operation, second: Operation) -> None:
        least = self.instance.duration(first.kind, first.stage) + self._comm(first, second)
        self.model.add(self.start[second] >= self.start[first] + least)

    def _comm(self, first: Operation, second: Operation) -> int:
        return self.instance.comm(
            self.instance.device(first.stage, first.microbatch),
            self.instance.device(second.stage, second.microbatch),
        )

    def _leave_in_turn(self, first: Operation, second: Operation, literal: cp_model.LiteralT) -> None:
        departure = self.variables.departure
        busy = self.instance.costs.link_occupancy
        took = self.instance.duration(first.kind, first.stage)
        self.model.add(departure[second] >= departure[first] + busy).only_enforce_if(literal)
        self.model.add(self.start[second] >= self.start[first] + took).only_enforce_if(literal)

    def _on(self, device: int) -> list[Operation]:
        return [op for op in self.start if self.instance.device(op.stage, op.microbatch) == device]

    def _delta(self, op: Operation) -> int:
        return self.instance.memory_delta(op.kind, op.stage)

    def _change_time(self, op: Operation) -> cp_model.LinearExprT:
        """Return the time at which an operation changes memory: an F at its start, a B or W at its end."""
        start = self.start[op]
        return start if op.kind is OpKind.F else start + self.instance.duration(op.kind, op.stage)

    def _least(self, held: list[Operation]) -> int:
        """Return a value below which memory never falls; CP-SAT's reservoir constraint requires one."""
        return sum(min(0, self._delta(op)) for op in held)
