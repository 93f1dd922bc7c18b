"""The variables of the model of a repeating block: starts, residues, laps, delays and orders."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from ortools.sat.python import cp_model

from tightpipe.core.operation import Operation, OpKind

from ...block import Shape
from ...block.block import Wait
from ...block.least_period import earliest_starts

Pair = tuple[Operation, Operation]


class Variables:
    """The variables of the model.

    The *delay* of a wait is the number of ticks by which an operation starts later than the wait requires.

    Parameters
    ----------
    model
        The CP-SAT model that receives the variables.
    shape
        What the block consists of.
    period
        The period T in ticks.
    most
        Upper limit on the delay of each wait, in ticks, from `delays.most_delays`.

    Attributes
    ----------
    start, lap, residue
        The start, the lap and the residue of each operation, as in `block.block`.
    delay
        The delay of each wait.
    on
        The operations of each device.
    precedes
        For any two operations of a device, in both sequences, whether the first has the smaller residue.
    """

    def __init__(self, model: cp_model.CpModel, shape: Shape, period: int, most: dict[Wait, int]) -> None:
        self.model, self.shape, self.period = model, shape, period
        self.start: dict[Operation, cp_model.IntVar] = {}
        self.lap: dict[Operation, cp_model.IntVar] = {}
        self.residue: dict[Operation, cp_model.IntVar] = {}
        self.delay: dict[Wait, cp_model.IntVar] = {}
        self.on = [shape.on(device) for device in range(shape.instance.devices)]
        for m in range(shape.microbatches):
            self._add_microbatch(m, most)
        self.precedes: dict[
            Pair, Any
        ] = {}  # booleans and their negations, for which CP-SAT has no common type
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

    def _add_operation(self, operation: Operation, least: int, largest: int) -> None:
        new, period = self.model.new_int_var, self.period
        self.start[operation] = new(least, largest, f"start {operation}")
        self.residue[operation] = new(0, period - 1, f"residue {operation}")
        self.lap[operation] = new(least // period, largest // period, f"lap {operation}")

    def _add_orders(self, operations: list[Operation]) -> None:
        """Add, for any two operations of a device, a boolean: the first one has the smaller residue."""
        for one, other in combinations(operations, 2):
            literal = self.model.new_bool_var(f"{one} before {other}")
            self.precedes[one, other] = literal
            self.precedes[other, one] = ~literal
