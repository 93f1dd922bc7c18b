"""The CP-SAT model whose solutions are repeating blocks of a given period."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tightpipe.core.instance import Instance
from tightpipe.core.schedule import Order

from ...block import Block, Shape, unrolled
from .constraints import Constraints
from .delays import most_delays, rooms
from .variables import Variables


class PeriodicModel:
    """The CP-SAT model whose solutions are repeating blocks of a shape with a given period.

    The model does not contain all of these blocks, but it has a solution if there is any such block. The hint
    is that all delays are 0: good blocks have little delay, because delays take memory. With this hint CP-SAT
    finds blocks in seconds that it otherwise does not find in minutes.

    Parameters
    ----------
    shape
        What the block consists of.
    period
        The period T in ticks, at least `period_bound` of the shape.

    Attributes
    ----------
    block
        The block that `order` has read from a solution; None before its first call.
    """

    with_precedences = False
    horizon = 0

    def __init__(self, shape: Shape, period: int) -> None:
        self.instance: Instance = shape.instance
        self.model = cp_model.CpModel()
        self.block: Block | None = None
        self._shape, self._period = shape, period
        room = rooms(shape, period)
        self.variables = Variables(self.model, shape, period, most_delays(shape, period, room))
        Constraints(self.model, self.variables, room).add_constraints()
        for delay in self.variables.delay.values():
            self.model.add_hint(delay, 0)

    @property
    def start(self) -> list[cp_model.IntVar]:
        """The variables of the start times, in the sequence in which `order` expects their values."""
        return list(self.variables.start.values())

    def order(self, start: list[int]) -> Order:
        """Store the block of a solution as `block`, and return the instance's order that repeats this block.

        `start` has the values, in ticks, of the variables in the property `start`.
        """
        self.block = Block(self._shape, self._period, dict(zip(self.variables.start, start, strict=True)))
        return unrolled(self.block, self.instance).order
