"""Tiny instances on which each constraint family of the exact models matters, and a way to leave families out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from helpers.cases import serial_order, uniform
from tightpipe import Instance, Memory, retime
from tightpipe.model.costs import Step
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED
from tightpipe.solver.queues import Queues
from tightpipe.solver.windows import Windows, windows_of


@dataclass(frozen=True)
class Known:
    """An instance and the least cost of its schedules, on which all exact models agree."""

    instance: Instance
    optimum: int


_TIMES = (3, 4, 2)
TWO = Known(uniform(2, 2, _TIMES, comm=1, placement="linear"), 25)
THREE = Known(uniform(2, 3, _TIMES, comm=1, placement="linear"), 32)
ALONE = Known(uniform(2, 3, _TIMES, comm=1, placement="linear", memory=Memory(2, -1, -1, 2)), 54)
IN_PAIRS = Known(uniform(2, 4, _TIMES, comm=1, placement="linear", memory=Memory(2, -1, -1, 4)), 45)
BUSY = Known(uniform(2, 2, _TIMES, comm=1, placement="linear", link_occupancy=9), 27)
POOLED = Known(uniform(2, 2, _TIMES, comm=1), 42)
_TIGHT: Any = {"comm": 1, "placement": "linear", "memory": Memory(2, -1, -1, 4)}
WIDE = {
    "fused": Known(uniform(2, 3, _TIMES, fused=4, **_TIGHT), 32),
    "paired": Known(uniform(2, 3, _TIMES, overlapped=6, comm=1, placement="linear"), 32),
}
"""With rules that are not in the others."""
FUSED = Known(uniform(2, 2, _TIMES, comm=1, fused=5, objective="makespan"), 42)
REDUCED = Known(uniform(1, 1, _TIMES, objective="step", step=Step(reduce=[30, 30])), 72)


@dataclass(frozen=True)
class Case:
    """Where a family matters.

    Parameters
    ----------
    known
        The instance.
    beside
        Other families, from which this one follows. Where there are some, the family only helps the search:
        the model without it has the same solutions, so it is left out of a model that lacks the others too.
    """

    known: Known
    beside: tuple[str, ...] = ()


def families_of(constraints: type) -> set[str]:
    """The methods that add one family each."""
    return {name for name in vars(constraints) if not name.startswith("_")} - {"add_constraints"}


@contextmanager
def left_out(constraints: type, families: Iterable[str]) -> Iterator[None]:
    """Let these families add nothing."""
    with ExitStack() as stack:
        for family in families:
            stack.enter_context(mock.patch.object(constraints, family))
        yield


def horizon_of(instance: Instance) -> int:
    """The cost of microbatch after microbatch, within which there is a schedule."""
    return cost(retime(instance, serial_order(instance)))


def open_windows(queues: Queues) -> Windows:
    """Windows from which nothing is concluded, as no time is left for it: the families alone have to hold."""
    return windows_of(queues, horizon_of(queues.instance), UNLIMITED.within(0))
