"""What a heuristic is: a function Instance -> Order, with where it applies and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tightpipe.instance import Instance
from tightpipe.schedule import Order


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A schedule family.

    Parameters
    ----------
    name
        As given to `tightpipe.solve` and ``--method``.
    make
        Instance -> Order; raises `NoScheduleError` when it has none at the memory limit.
    placements
        Names of the placements that it can schedule.
    memory
        Which memory limits it respects, for people.
    source
        Paper and section.
    """

    name: str
    make: Callable[[Instance], Order]
    placements: tuple[str, ...]
    memory: str
    source: str
