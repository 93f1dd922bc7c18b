"""What a heuristic is: a function Instance -> Order, with where it applies and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tightpipe.core.errors import NoScheduleError
from tightpipe.core.instance import Instance
from tightpipe.core.schedule import Order


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A schedule family.

    Parameters
    ----------
    name
        As given to `tightpipe.solving.solve` and ``--method``.
    make
        Instance of one iteration -> Order; raises `NoScheduleError` when it has none.
    placements
        Names of the placements that it can schedule.
    memory
        Which memory limits it respects, for people.
    source
        Paper and section.
    flushless
        Instance of several iterations without a flush -> Order; None if the family always flushes.
    """

    name: str
    make: Callable[[Instance], Order]
    placements: tuple[str, ...]
    memory: str
    source: str
    flushless: Callable[[Instance], Order] | None = None

    def order(self, instance: Instance) -> Order:
        """Return the order for all iterations of the instance.

        Raises
        ------
        NoScheduleError
            If the family has no schedule for the instance.
        InfeasibleError
            If there is none at all.
        """
        if instance.iterations == 1:
            return self.make(instance)
        if instance.flush:
            block = instance.microbatches // instance.iterations
            once = self.make(replace(instance, microbatches=block, iterations=1))
            return _repeated(once, instance.iterations, block)
        if self.flushless is None:
            raise NoScheduleError(f"{self.name} has no form without a flush between iterations")
        return self.flushless(instance)


def _repeated(order: Order, times: int, block: int) -> Order:
    """Run `order` again and again, each time with the next `block` microbatches."""
    pieces, joined = [], []
    for device in range(order.devices):
        for k in range(times):
            pieces.append(order.operations[order.rows(device)] + np.array([0, 0, k * block]))
            joined.append(order.pairs[order.rows(device)])
    return Order(np.concatenate(pieces), order.offsets * times, np.concatenate(joined))
