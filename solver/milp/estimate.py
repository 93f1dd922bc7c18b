"""Estimates of a model's size before the model is built, and checks that refuse unsuitable instances."""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe.core.errors import InputError
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind

from ..modelled import refuse_unmodelled
from ..queues import Queues

_ROWS_PER_BINARY = 4  # two big-M rows, and two rows of `Constraints.lattice`
_ROWS_PER_ITEM = 7  # sequence, precedence, two for its window in the frame, work before and after it, memory
_KILOBYTES_PER_BINARY = 28.0  # measured: 9 in PuLP, and 19 in HiGHS at the root of its search
_KILOBYTES_PER_ITEM = 28.0


@dataclass(frozen=True, slots=True)
class Size:
    """The estimated size of a model.

    Parameters
    ----------
    binaries
        Number of binaries, each for the order of two items.
    continuous
        Number of start times.
    constraints
        Number of rows.
    """

    binaries: int
    continuous: int
    constraints: int

    @property
    def megabytes(self) -> int:
        """Memory that the model takes in PuLP and at the root of the backend's search, in 2**20 bytes."""
        kilobytes = self.binaries * _KILOBYTES_PER_BINARY + self.continuous * _KILOBYTES_PER_ITEM
        return round(kilobytes / 1024)

    def __str__(self) -> str:
        return (
            f"{self.binaries} order binaries, {self.continuous} start times and {self.constraints} "
            f"constraints, about {self.megabytes} MB"
        )


def size_of(queues: Queues, binaries: int) -> Size:
    """Return the size of a model with `binaries` binaries, one for each pair of items whose order is open."""
    items = sum(queue.count for queue in queues.queues)
    return Size(binaries, items, _ROWS_PER_BINARY * binaries + _ROWS_PER_ITEM * items)


def refuse_if_too_large(size: Size, most: int) -> None:
    """Raise an error if a model would take too much memory.

    Raises
    ------
    InputError
        If the model would take more than `most` times 2**20 bytes. The message gives the estimate and this
        cap.
    """
    if size.megabytes > most:
        rule = f"too large for milp: {size}; the cap is {most} MB"
        raise InputError(rule, key="instance")


def refuse_if_not_modelled(instance: Instance) -> None:
    """Raise an error if the instance has a rule that the model leaves out.

    Raises
    ------
    InputError
        If operations overlap, iterations are flushed, or a message may have to wait for its link. The error
        names the entry of the instance.
    """
    refuse_unmodelled("milp", instance)
    shortest = min(instance.duration(k, s) for k in (OpKind.F, OpKind.B) for s in range(instance.stages))
    if instance.costs.link_occupancy > shortest:  # up to `shortest`, no message waits for another
        rule = f"milp does not model busy links: must be at most {shortest}, the shortest F or B"
        raise InputError(rule, key="link_occupancy", value=instance.costs.link_occupancy)
