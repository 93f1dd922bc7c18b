"""The CP-SAT model whose solutions are repeating blocks of a given period.

The model decides for each operation of a block in which period it starts (its lap) and where in the period
(its residue). The sequence of a device's operations follows from the residues. Each wait for another
operation has a delay: the ticks by which the operation starts later than the wait requires. Two arguments
keep the delays small, and so the model, without the loss of any period.

**Two periods are enough.** Let operation v wait for operation u. Shift the v of every microbatch, and all
operations that follow v on the microbatch's path, to the times at which the previous microbatch of the route
runs these operations. The devices are then busy at the same times as before, and hold no activation for
longer. Repeat this, for any wait, as long as every shifted v still starts late enough after its u. In the
end, for every wait, the v of some microbatch cannot be shifted in this way. The delay of that v is less than
a period, because the previous v starts at most a period earlier. The delays of the same wait in the other
microbatches differ from it by at most a period: queues are first in, first out, and the starts in a queue
repeat after K microbatches and one period. If K is 1, all microbatches have the same delay. What a wait for a
B requires depends on whether the B is fused; delays count from the least that it may require.

**Fused backwards.** A BW is the B and the W that are its parts (`blocks.block`). The model decides which B's
and W's are, and thereby how long they take.

**Memory.** Take each activation that a device holds in the block, and multiply its memory by the ticks for
which it is held. By Little's law, the sum of these products is at most the memory limit times the period. An
activation is held for the length of the shortest path from its F to its B or W, plus the delays on that path.
So the limit leaves room for a weighted sum of delays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import Any

from ortools.sat.python import cp_model

from tightpipe.model.instance import Instance
from tightpipe.model.operation import Operation, OpKind
from tightpipe.model.schedule import Order, Schedule
from tightpipe.model.simulate import retime

from .block import Block, Shape, Wait, earliest_starts, memory_time
from .unroll import unrolled


@dataclass(frozen=True, slots=True)
class Room:
    """How much delay the memory limit of a device has room for.

    If `most` is negative, there is no block of the period.
    """

    takes: dict[Wait, int]  #: the memory that is held one tick longer by each tick of a delay
    most: int  #: the most that the sum of this memory times the delay may be, in memory times ticks


def rooms(shape: Shape, period: int) -> list[Room]:
    """Return the room for delays, in a block of this period, on each device that has a memory limit."""
    found = []
    for device in range(shape.instance.devices):
        limit = shape.instance.memory_limit(device)
        if limit is not None:
            most = limit * period - memory_time(shape, device)
            found.append(Room(_takes(shape, device), most))
    return found


def most_delays(shape: Shape, period: int, found: list[Room]) -> dict[Wait, int]:
    """Return an upper limit on the delay of each wait, in ticks, that loses no solution in these rooms."""
    enough = period - 1 if shape.copies == 1 else 2 * period - 1
    most = {
        wait: enough + max(shape.duration(wait.before), shape.fused(wait.before)) - shape.least(wait.before)
        for m in range(shape.microbatches)
        for wait in shape.waits(m)
    }
    for room in found:
        for wait, memory in room.takes.items():
            most[wait] = min(most[wait], room.most // memory)
    return most


def _takes(shape: Shape, device: int) -> dict[Wait, int]:
    """Return, for each wait, the memory on `device` that is held one tick longer by each tick of its delay.

    A delay of a W holds what the W frees. A delay on the chain of F's and B's holds the memory of each stage
    of the device whose F has begun and whose B has not. Waits whose delays hold no memory are left out.
    """
    takes: dict[Wait, int] = {}
    for m in range(shape.microbatches):
        held = 0
        for wait in shape.waits(m):
            before, after = wait.before, wait.after
            if after.kind is OpKind.W:
                here = -shape.delta(after) if shape.device(after) == device else 0
            else:
                held += _change(shape, before, device)
                here = held
            if here > 0:
                takes[wait] = here
    return takes


def _change(shape: Shape, operation: Operation, device: int) -> int:
    """Return by how much `operation`, when it starts, changes what `device` holds for B's yet to start."""
    if shape.device(operation) != device:
        return 0
    whole = shape.delta(Operation(OpKind.F, operation.stage, operation.microbatch))
    return whole if operation.kind is OpKind.F else -whole


@dataclass(frozen=True, slots=True)
class Tie:
    """Two devices of a V that are in the same state, but for a shift in time (see `grown`).

    On its way to the last device, a microbatch comes to `other` some time X after it was at `device`, with
    its F's and with its B's; on its way back it comes to `device` a period less X after it was at `other`.
    W's run as much later as the B's.
    """

    device: int  #: the one that is farther from the last device
    other: int

    def pairs(self, shape: Shape) -> Iterator[tuple[Operation, Operation, bool]]:
        """Yield the operations of `device`, the same ones of `other`, and whether these come X later."""
        apart, last = self.other - self.device, shape.instance.stages - 1
        for operation in shape.on(self.device):
            back = operation.stage == last - self.device
            same = operation._replace(stage=operation.stage - apart if back else operation.stage + apart)
            yield operation, same, back != (operation.kind is OpKind.F)


Pair = tuple[Operation, Operation]


class Variables:
    """The variables of the model.

    The *delay* of a wait is the number of ticks by which an operation starts later than the wait requires.

    - `start`, `lap`, `residue`: the start, the lap and the residue of each operation, as in `blocks.block`.
    - `delay`: the delay of each wait.
    - `on`: the operations of each device.
    - `fused`: for each B that may be fused and for its W, whether they are.
    - `precedes`: for any two operations of a device, in both sequences, whether the first has less residue.
    """

    def __init__(self, model: cp_model.CpModel, shape: Shape, period: int, most: dict[Wait, int]) -> None:
        self.model, self.shape, self.period = model, shape, period
        self.start: dict[Operation, cp_model.IntVar] = {}
        self.lap: dict[Operation, cp_model.IntVar] = {}
        self.residue: dict[Operation, cp_model.IntVar] = {}
        self.delay: dict[Wait, cp_model.IntVar] = {}
        self.on = [shape.on(device) for device in range(shape.instance.devices)]
        self.fused: dict[Operation, cp_model.IntVar] = {}
        for m in range(shape.microbatches):
            self._add_microbatch(m, most)
        # booleans and their negations, for which CP-SAT has no common type
        self.precedes: dict[Pair, Any] = {}
        for operations in self.on:
            self._add_orders(operations)

    def _add_microbatch(self, m: int, most: dict[Wait, int]) -> None:
        least = earliest_starts(self.shape, m)
        first = Operation(OpKind.F, 0, m)
        # The block can be shifted in time so that F0 of microbatch 0 starts at 0. Of every other microbatch,
        # the block can contain the repetition whose F0 starts in the first period.
        largest = {first: 0 if m == 0 else self.period - 1}
        self._add_operation(first, 0, largest[first])
        for wait in self.shape.waits(m):
            largest[wait.after] = largest[wait.before] + wait.lag + most[wait]
            self._add_operation(wait.after, least[wait.after], largest[wait.after])
            self.delay[wait] = self.model.new_int_var(0, most[wait], f"delay {wait.after}")

    def ticks(self, operation: Operation) -> cp_model.LinearExpr | int:
        """Return how long an operation takes, alone or as a part of a BW."""
        alone = self.shape.duration(operation)
        if operation not in self.fused:
            return alone
        return alone + (self.shape.part(operation) - alone) * self.fused[operation]

    def _add_operation(self, operation: Operation, least: int, largest: int) -> None:
        new, period = self.model.new_int_var, self.period
        if operation.kind is OpKind.B and self.shape.fused(operation):
            literal = self.model.new_bool_var(f"fused {operation}")
            self.fused[operation] = self.fused[operation._replace(kind=OpKind.W)] = literal
        self.start[operation] = new(least, largest, f"start {operation}")
        self.residue[operation] = new(0, period - 1, f"residue {operation}")
        self.lap[operation] = new(least // period, largest // period, f"lap {operation}")

    def _add_orders(self, operations: Sequence[Operation]) -> None:
        """Add, for any two operations of a device, a boolean: the first one has the smaller residue."""
        for one, other in combinations(operations, 2):
            literal = self.model.new_bool_var(f"{one} before {other}")
            self.precedes[one, other] = literal
            self.precedes[other, one] = ~literal


class Constraints:
    """Adds the constraints of the model, one method for each family.

    `blocks.block` defines residues and laps, and `Variables` defines delays.
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
        """Require that an operation starts lag + delay ticks after the start of the one that it waits for.

        The delay is at least what the latter takes longer than its least ticks. A fused W has none.
        """
        start, fused, shape = self.variables.start, self.variables.fused, self.shape
        for wait, delay in self.variables.delay.items():
            before, after = wait.before, wait.after
            self.model.add(start[after] == start[before] + wait.lag + delay)
            if before in fused:
                alone, own = shape.duration(before), after == before._replace(kind=OpKind.W)
                together = shape.part(before) if own else shape.fused(before)
                longer = alone - shape.least(before) + (together - alone) * fused[before]
                self.model.add(delay >= longer)
                if own:
                    self.model.add(delay == 0).only_enforce_if(fused[before])

    def sequence(self) -> None:
        """Require that the operations of a queue run one after another, also from period to period.

        A BW may overtake W's.
        """
        v = self.variables
        for queue in self.shape.queues():
            again = [(queue[-1], queue[0], self.period)] if len(queue) > 1 else []
            for one, other, later in [*((one, other, 0) for one, other in pairwise(queue)), *again]:
                row = self.model.add(v.start[other] + later >= v.start[one] + v.ticks(one))
                if one.kind is OpKind.W and one in v.fused:
                    row.only_enforce_if(~v.fused[one], ~v.fused[other])

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
                v, residue = self.variables, self.variables.residue[operation]
                alone, fused = self.shape.duration(operation), v.fused.get(operation)
                sizes: list[tuple[int, cp_model.LiteralT]] = [(alone, True)]
                if fused is not None:
                    sizes = [(alone, ~fused), (self.shape.part(operation), fused)]
                for begin, (ticks, literal) in product((residue, residue + self.period), sizes):
                    intervals.append(
                        self.model.new_optional_fixed_size_interval_var(begin, ticks, literal, f"{operation}")
                    )
            self.model.add_no_overlap(intervals)

    def memory(self) -> None:
        """Require that each device's memory is within its limit whenever an F that takes some has started.

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
                    if self.shape.delta(operation) > 0 or self.shape.passing(operation) > 0:
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
        ends = residue[one] + self.variables.ticks(one)
        ends_again = residue[other] + self.variables.ticks(other)
        self.model.add(residue[other] >= ends).only_enforce_if(literal)
        self.model.add(residue[one] + self.period >= ends_again).only_enforce_if(literal)

    def _memory_at(self, operation: Operation, operations: Sequence[Operation], limit: int) -> None:
        v, delta = self.variables, self.shape.delta
        held = [
            delta(other) * (v.lap[operation] - v.lap[other] + v.precedes[other, operation])
            for other in operations
            if other != operation
        ]
        self.model.add(sum(held) + delta(operation) + self.shape.passing(operation) <= limit)


class PeriodicModel:
    """The CP-SAT model whose solutions are repeating blocks of a shape with a given period.

    The model does not contain all of these blocks, but it has a solution if there is any such block. The hint
    is that all laps are those of a block that is `like` those looked for, because shorter periods mostly need
    few other laps. Without such a block the hint is that all delays are 0: good blocks have little delay,
    because delays take memory. With either hint CP-SAT finds blocks in seconds that it otherwise does not
    find in minutes, with the laps of a block of hardly longer period in a few tenths of a second.

    - `period`: the period T in ticks, at least `period_bound` of the shape.
    - `like`: a block of the shape; None for none.
    - `tie`: two devices that have to be in the same state; None for none.
    - `block`: the block that `order` has read from a solution; None before its first call.
    """

    with_precedences = False
    presolved = False
    horizon = 0

    def __init__(self, shape: Shape, period: int, like: Block | None = None, tie: Tie | None = None) -> None:
        self.instance: Instance = shape.instance
        self.model = cp_model.CpModel()
        self.block: Block | None = None
        self._shape, self._period = shape, period
        room = rooms(shape, period)
        self.variables = Variables(self.model, shape, period, most_delays(shape, period, room))
        Constraints(self.model, self.variables, room).add_constraints()
        if tie is not None:
            self._add(tie)
        if like is not None:
            for operation, lap in self.variables.lap.items():
                self.model.add_hint(lap, like.start[operation] // like.period)
        else:
            for delay in self.variables.delay.values():
                self.model.add_hint(delay, 0)

    def _add(self, tie: Tie) -> None:
        """Require that two devices are in the same state, but for a shift in time."""
        start, fused, period = self.variables.start, self.variables.fused, self._period
        shift = self.model.new_int_var(0, period, "shift")
        for one, other, later in tie.pairs(self._shape):
            self.model.add(start[other] == start[one] + shift - (0 if later else period))
            if one in fused:
                self.model.add(fused[other] == fused[one])

    @property
    def decisions(self) -> list[cp_model.IntVar]:
        """The variables of the start times, and of what is fused."""
        return [*self.variables.start.values(), *self.variables.fused.values()]

    def order(self, values: list[int]) -> Order:
        """Store the block of a solution as `block`, and return the order that repeats it in the instance."""
        operations = self.variables.start
        fused = zip(self.variables.fused, values[len(operations) :], strict=True)
        parts = frozenset(operation for operation, value in fused if value)
        start = dict(zip(operations, values, strict=False))
        self.block = Block(self._shape, self._period, start, parts)
        return unrolled(self.block, self.instance).order

    def schedule(self, values: list[int]) -> Schedule:
        """Store the block of a solution as `block`, and return the schedule that repeats it."""
        return retime(self.instance, self.order(values))
