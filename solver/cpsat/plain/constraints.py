"""The constraints of the plain model, one method for each family."""

from __future__ import annotations

from itertools import product

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.operation import Operation, OpKind

from .operations import gradient_at, receiver
from .variables import Variables


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
        self.variables, self.start = variables, variables.start

    def add_constraints(self) -> None:
        """Add the constraints of all families."""
        self.ready()
        self.forward_dependency()
        self.backward_dependency()
        self.weight_dependency()
        self.pairs()
        self.flushes()
        self.busy_links()
        self.no_overlap()
        self.memory()
        if self.fifo:
            self.first_in_first_out()

    def ready(self) -> None:
        """Require that no F starts before its stage is ready."""
        step = self.instance.barrier
        for op, start in self.start.items() if step is not None else ():
            if op.kind is OpKind.F:
                self.model.add(start >= step.ready[op.stage])  # type: ignore[union-attr, index]

    def forward_dependency(self) -> None:
        """Require that F follows the F of the previous stage, after communication."""
        for m in range(self.instance.microbatches):
            for s in range(1, self.instance.stages):
                self._follows(Operation(OpKind.F, s - 1, m), Operation(OpKind.F, s, m))

    def backward_dependency(self) -> None:
        """Require that B follows the B of the next stage, and at the last stage the F of that stage.

        So does a W without B.
        """
        last = self.instance.stages - 1
        for m in range(self.instance.microbatches):
            for s in range(last + 1):
                after = gradient_at(self.instance, s, m)
                if after is not None:
                    before = Operation(OpKind.B, s + 1, m) if s < last else Operation(OpKind.F, s, m)
                    self._follows(before, after)

    def weight_dependency(self) -> None:
        """Require that W follows its own B, or ends with it if the two are fused."""
        for op, start in self.start.items():
            backward = op._replace(kind=OpKind.B)
            if op.kind is not OpKind.W or backward not in self.start:
                continue
            ended, alone = self.variables.end[backward], self.variables.joint.alone.get(op)
            if alone is None:
                self.model.add(start >= ended)
            else:
                self.model.add(start >= ended).only_enforce_if(alone)
                self.model.add(self.variables.end[op] == ended).only_enforce_if(~alone)

    def pairs(self) -> None:
        """Require that an F and a backward that run as a pair start together."""
        for (f, b), literal in self.variables.joint.pairs.items():
            self.model.add(self.start[f] == self.start[b]).only_enforce_if(literal)

    def flushes(self) -> None:
        """Require that a device ends all operations of an iteration before it starts the next."""
        iterations = self.instance.iterations if self.instance.flush else 1
        for device, k in product(range(self.instance.devices), range(1, iterations)):
            flushed = self.model.new_int_var(0, self.variables.latest, f"flush{device}.{k}")
            for op in self._on(device):
                if self.instance.iteration(op.microbatch) < k:
                    self.model.add(self.variables.end[op] <= flushed)
                elif op.kind is OpKind.F:  # what comes after the F's of an iteration waits for them
                    self.model.add(self.start[op] >= flushed)

    def busy_links(self) -> None:
        """Require that messages on one link leave in the sequence of the operations that send them.

        They leave at least one link occupancy apart. A message leaves no earlier than its operation ends, and
        the receiving operation starts after the message has arrived.
        """
        departure = self.variables.departure
        for op, leaves in departure.items():
            self.model.add(leaves >= self.variables.end[op])
            after = receiver(self.instance, op)
            assert after is not None
            self.model.add(self.start[after] >= leaves + self._comm(op, after))
        for (first, second), literal in self.variables.precedes.items():
            self._leave_in_turn(first, second, literal)
            self._leave_in_turn(second, first, ~literal)

    def no_overlap(self) -> None:
        """Require that a device runs one operation at a time."""
        for device in range(self.instance.devices):
            self.model.add_no_overlap(self.variables.intervals[device])

    def memory(self) -> None:
        """Require that the memory of a device is within its limit at every time."""
        for device in range(self.instance.devices):
            limit = self.instance.memory_limit(device)
            if limit is None:
                continue
            changes = [change for op in self._on(device) for change in self._changes(op)]
            times, deltas = [time for time, _ in changes], [delta for _, delta in changes]
            least = sum(
                min(0, delta) for delta in deltas
            )  # below which memory never falls; CP-SAT asks for it
            self.model.add_reservoir_constraint(times, deltas, least, limit)

    def first_in_first_out(self) -> None:
        """Require that, for every kind and stage, the microbatches of one route run in sequence.

        A W that is fused may overtake others.
        """
        for first in self.start:
            second = first._replace(microbatch=first.microbatch + 1)
            if second not in self.start or self.instance.route(first.microbatch) != self.instance.route(
                second.microbatch
            ):
                continue
            row, alone = (
                self.model.add(self.start[second] >= self.variables.end[first]),
                self.variables.joint.alone,
            )
            if first.kind is OpKind.W and first in alone:
                row.only_enforce_if(alone[first], alone[second])

    def _follows(self, first: Operation, second: Operation) -> None:
        self.model.add(self.start[second] >= self.variables.end[first] + self._comm(first, second))

    def _comm(self, first: Operation, second: Operation) -> int:
        return self.instance.comm(
            self.instance.device(first.stage, first.microbatch),
            self.instance.device(second.stage, second.microbatch),
        )

    def _leave_in_turn(self, first: Operation, second: Operation, literal: cp_model.LiteralT) -> None:
        departure = self.variables.departure
        busy = self.instance.costs.link_occupancy
        self.model.add(departure[second] >= departure[first] + busy).only_enforce_if(literal)
        self.model.add(self.start[second] >= self.variables.end[first]).only_enforce_if(literal)

    def _on(self, device: int) -> list[Operation]:
        return [op for op in self.start if self.instance.device(op.stage, op.microbatch) == device]

    def _changes(self, op: Operation) -> list[tuple[cp_model.LinearExprT, int]]:
        """Return when and by how much an operation changes memory: an F at its start, a B or W at its end.

        An F that keeps nothing frees at its end what it has taken.
        """
        start, end = self.start[op], self.variables.end[op]
        delta = self.instance.memory_delta(op.kind, op.stage)
        passing = self.instance.memory_while_running(op.stage) if op.kind is OpKind.F else 0
        changes = [(start if op.kind is OpKind.F else end, delta), (start, passing), (end, -passing)]
        return [(time, change) for time, change in changes if change]
