"""How large a model would be, before it is built, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe.core.errors import InputError
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind

from ..modelled import refuse_unmodelled
from ..queues import Queues

MOST_MEGABYTES = 4096
_ROWS_PER_BINARY = 4  # two big-M rows, two rows of the lattice
_ROWS_PER_ITEM = 7  # sequence, precedence, head and tail, work before and after, memory
_KILOBYTES_PER_BINARY = 28.0  # measured: 9 in PuLP, 19 in HiGHS at the root
_KILOBYTES_PER_ITEM = 28.0


@dataclass(frozen=True, slots=True)
class Size:
    """Estimated size of a model.

    Parameters
    ----------
    binaries, continuous, constraints
        Numbers of order binaries, start times and rows.
    """

    binaries: int
    continuous: int
    constraints: int

    @property
    def megabytes(self) -> int:
        """Memory of the model in PuLP and in the backend at the root of its search."""
        kilobytes = self.binaries * _KILOBYTES_PER_BINARY + self.continuous * _KILOBYTES_PER_ITEM
        return round(kilobytes / 1024)

    def __str__(self) -> str:
        return (
            f"{self.binaries} order binaries, {self.continuous} start times and {self.constraints} "
            f"constraints, about {self.megabytes} MB"
        )


def size_of(queues: Queues, binaries: int) -> Size:
    """Return the size of a model with so many open pairs of items."""
    items = sum(queue.count for queue in queues.queues)
    return Size(binaries, items, _ROWS_PER_BINARY * binaries + _ROWS_PER_ITEM * items)


def refuse_if_too_large(size: Size) -> None:
    """Refuse a model that would not fit.

    Raises
    ------
    InputError
        With the estimate and the cap.
    """
    if size.megabytes > MOST_MEGABYTES:
        rule = f"too large for milp: {size}; the cap is {MOST_MEGABYTES} MB"
        raise InputError(rule, key="instance")


def refuse_if_not_modelled(instance: Instance) -> None:
    """Refuse what the model leaves out.

    Raises
    ------
    InputError
        Naming the entry of the instance.
    """
    refuse_unmodelled("milp", instance)
    shortest = min(instance.duration(k, s) for k in (OpKind.F, OpKind.B) for s in range(instance.stages))
    if instance.costs.link_occupancy > shortest:  # up to that, no message ever waits for another
        rule = f"milp does not model busy links: must be at most {shortest}, the shortest F or B"
        raise InputError(rule, key="link_occupancy", value=instance.costs.link_occupancy)
