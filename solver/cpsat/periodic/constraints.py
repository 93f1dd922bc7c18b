"""The constraints of the model of a repeating block, one method for each family."""

from __future__ import annotations

from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from tightpipe.core.operation import Operation

from .delays import Room
from .variables import Variables


class Constraints:
    """Adds the constraints of the model, one method for each family.

    `block.block` defines residues and laps, and `Variables` defines delays.

    Parameters
    ----------
    model
        The CP-SAT model that receives the constraints.
    variables
        The variables of the model.
    rooms
        The room for delays that the memory limit of each device leaves.
    """

    def __init__(self, model: cp_model.CpModel, variables: Variables, rooms: list[Room]) -> None:
        self.model, self.variables, self.rooms = model, variables, rooms
        self.shape, self.period = variables.shape, variables.period

    def add_constraints(self) -> None:
        """Add the constraints of all families."""
        self.laps()
        self.waits()
        self.sequence()
        self.order_in_time()
        self.no_overlap()
        self.memory()
        self.memory_time()

    def laps(self) -> None:
        """Require that the start of an operation is its residue plus its lap times the period."""
        v = self.variables
        for operation, start in v.start.items():
            self.model.add(start == v.residue[operation] + self.period * v.lap[operation])

    def waits(self) -> None:
        """Require that an operation starts lag + delay ticks after the start of the one that it waits for."""
        start = self.variables.start
        for wait, delay in self.variables.delay.items():
            self.model.add(start[wait.after] == start[wait.before] + wait.lag + delay)

    def sequence(self) -> None:
        """Require that the operations of a queue run one after another, also from period to period."""
        start = self.variables.start
        for queue in self.shape.queues():
            for one, other in pairwise(queue):
                self.model.add(start[other] >= start[one] + self.shape.duration(one))
            if len(queue) > 1:
                self.model.add(
                    start[queue[0]] + self.period >= start[queue[-1]] + self.shape.duration(queue[-1])
                )

    def order_in_time(self) -> None:
        """Require that any two operations of a device run one after the other in every period.

        The one with the smaller residue ends before the other one starts, which in turn ends before the first
        one starts again, a period later.
        """
        for operations in self.variables.on:
            for one, other in combinations(operations, 2):
                literal = self.variables.precedes[one, other]
                self._apart(one, other, literal)
                self._apart(other, one, ~literal)

    def no_overlap(self) -> None:
        """Require that a device runs one operation at a time, also from one period to the next."""
        for operations in self.variables.on:
            intervals = []
            for operation in operations:
                duration, residue = self.shape.duration(operation), self.variables.residue[operation]
                for begin in (residue, residue + self.period):
                    intervals.append(self.model.new_fixed_size_interval_var(begin, duration, f"{operation}"))
            self.model.add_no_overlap(intervals)

    def memory(self) -> None:
        """Require that each device's memory is within its limit whenever an F has started.

        Repetition i of an operation of lap l starts i periods after l * T + residue. Let repetition 0 of an F
        of lap k start. Any other operation of the device, of lap l, has then run all its repetitions
        i < k - l, and also i = k - l if its residue is smaller than that of the F. These are k - l or
        k - l + 1 more than the repetitions i < 0; a negative number means fewer. The repetitions i < 0 of all
        operations together hold nothing, since the deltas of a microbatch on a device sum to zero.
        """
        for device, operations in enumerate(self.variables.on):
            limit = self.shape.instance.memory_limit(device)
            if limit is not None:
                for operation in operations:
                    if self.shape.delta(operation) > 0:
                        self._memory_at(operation, operations, limit)

    def memory_time(self) -> None:
        """Require that the sum of the delays, each times the memory it holds, is within each device's room.

        `Room` says how much memory each delay holds, and how large the sum may be.
        """
        for room in self.rooms:
            delays = (memory * self.variables.delay[wait] for wait, memory in room.takes.items())
            self.model.add(sum(delays) <= room.most)

    def _apart(self, one: Operation, other: Operation, literal: cp_model.LiteralT) -> None:
        residue = self.variables.residue
        ends = residue[one] + self.shape.duration(one)
        ends_again = residue[other] + self.shape.duration(other)
        self.model.add(residue[other] >= ends).only_enforce_if(literal)
        self.model.add(residue[one] + self.period >= ends_again).only_enforce_if(literal)

    def _memory_at(self, operation: Operation, operations: list[Operation], limit: int) -> None:
        v, delta = self.variables, self.shape.delta
        held = [
            delta(other) * (v.lap[operation] - v.lap[other] + v.precedes[other, operation])
            for other in operations
            if other != operation
        ]
        self.model.add(sum(held) + delta(operation) <= limit)
