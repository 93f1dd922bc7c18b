"""What is known of the schedules of methods that run the same orders at all costs, such as 1F1B.

If only such methods may schedule, the search space knows how many forwards precede the first backward of each
device, and how many backwards follow its last forward. Bounds of devices use both, and so plans that do not
fit are never looked at.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tightpipe.heuristics import HEURISTICS

from ..kernels.arrays import Ints
from ..model.costs import Costs
from ..model.instance import Instance
from ..model.operation import OpKind
from ..model.placement import Placement
from ..model.schedule import Order
from .problem import PlanningProblem

_MOST = 64  # orders of one method that are looked at


class Ramps(NamedTuple):
    """How the orders of a placement begin and end, one row per device and one column per chunk.

    The backward before which forwards are counted is the first one of the device, which is of its last stage.
    The forward after which backwards are counted is its last one, also of that stage.

    - `first`: the most forwards of any order before that backward.
    - `turn`: the most forwards between the first forward of the last stage and that backward.
    - `last`: the most backwards after that forward.
    - `wind`: the most backwards between that forward and the last backward of the last stage.
    - `flight`: the fewest forwards of any order before that backward, all of whose memory is then taken.
    """

    first: Ints
    turn: Ints
    last: Ints
    wind: Ints
    flight: Ints


def ramps_of(problem: PlanningProblem, placement: Placement) -> Ramps | None:
    """Return how all schedules of a placement begin and end; None unless each has one of a few fixed orders.

    In these orders B and W are always fused. Where activations may leave for a host, the memory of an order
    is not known.
    """
    names = [
        name
        for name in problem.methods_for()
        if name not in HEURISTICS or placement.name in HEURISTICS[name].placements
    ]
    if problem.cluster.host is not None or not names:
        return None
    return _ramps(tuple(names), placement, problem.batch.microbatches)


@lru_cache(maxsize=256)
def _ramps(names: tuple[str, ...], placement: Placement, microbatches: int) -> Ramps | None:
    instance = Instance(placement, microbatches, Costs(1, 1, 1))  # a pipeline in which costs say nothing
    found = list[Ramps]()
    for name in names:
        fixed = HEURISTICS[name].fixed if name in HEURISTICS else None
        orders = [] if fixed is None else fixed(instance)
        if not 0 < len(orders) <= _MOST:
            return None
        found += [_ramps_of(placement, order) for order in orders]
    *most, flight = zip(*found, strict=True)
    return Ramps(*(np.max(counts, axis=0) for counts in most), np.min(flight, axis=0))


def _ramps_of(placement: Placement, order: Order) -> Ramps:
    """Return how an order begins and ends, in which a device's last forward is of its last stage."""
    counts = np.zeros((4, placement.devices, placement.stages_per_device), np.int64)
    for device in range(placement.devices):
        rows, stages = order.operations[order.rows(device)], placement.stages_on(device)
        back, of_last = rows[:, 0] == OpKind.BW, rows[:, 1] == stages[-1]
        begins, ends = int(back.argmax()), len(rows) - int(back[::-1].argmin())
        turns, winds = int((~back & of_last).argmax()) + 1, len(rows) - 1 - int((back & of_last)[::-1].argmax())
        assert of_last[begins] and of_last[ends - 1] and turns <= begins and ends <= winds
        for k, part in enumerate((rows[:begins], rows[turns:begins], rows[ends:], rows[ends:winds])):
            counts[k, device] = [(part[:, 1] == stage).sum() for stage in stages]
    return Ramps(*counts, counts[0])
