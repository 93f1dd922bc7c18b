"""What is known of the schedules of methods that run the same orders at all costs, such as 1F1B.

If only such methods may schedule, the search space knows how many forwards precede the first backward of each
device, and how many backwards follow its last forward. Bounds of devices use both, and so plans that do not
fit are never looked at.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tightpipe.heuristics import HEURISTICS

from ..kernels.arrays import Ints
from ..model.costs import Costs, Objective
from ..model.instance import Instance
from ..model.metrics import cost
from ..model.operation import OpKind
from ..model.orders import order_of, without_absent
from ..model.placement import Placement
from ..model.schedule import Order
from ..model.simulate import simulate
from .problem import PlanningProblem

_MOST = 64  # orders that are looked at


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


def orders_of(problem: PlanningProblem, placement: Placement) -> tuple[Order, ...]:
    """Return all orders in which a placement may be scheduled, if these are few and the same at all costs.

    In these orders B and W are always fused. Where activations may leave for a host, the memory of an order
    is not known, and so none is returned.
    """
    everywhere = Instance(placement, problem.batch.microbatches, Costs(1, 1, 1))
    if problem.cluster.host:
        return ()
    return tuple(order for _, order in _orders(_names(problem, placement), everywhere))


def order_for_paths(problem: PlanningProblem, placement: Placement) -> Order | None:
    """Return the one order of a placement if its cost is the longest of its paths, else None.

    It is not where devices have spans of their own, pairs of operations take other times than both alone, or
    devices have other speeds. Frozen layers, slices and empty stages are left out, as their stages lack
    operations.
    """
    orders = orders_of(problem, placement)
    plain = problem.space.objective is not Objective.DEVICE_SPAN and not problem.cluster.speeds
    plain = plain and not (problem.has_pairs or problem.model.frozen or problem.space.empty)
    plain = plain and max(problem.space.slices) == 1
    return orders[0] if plain and len(orders) == 1 else None


def _names(problem: PlanningProblem, placement: Placement) -> tuple[str, ...]:
    """Return the methods that may schedule a placement."""
    return tuple(
        name
        for name in problem.methods_for()
        if name not in HEURISTICS or placement.name in HEURISTICS[name].placements
    )


@lru_cache(maxsize=64)
def _orders(names: tuple[str, ...], instance: Instance) -> tuple[tuple[str, Order], ...]:
    """Return method and order of all fixed orders, or none if one of the methods has no fixed orders.

    The instance, whose times are 0 or 1, says which stages have a B and a W.
    """
    everywhere, found = replace(instance, costs=Costs(1, 1, 1)), list[tuple[str, Order]]()
    for name in names:
        fixed = HEURISTICS[name].fixed if name in HEURISTICS else None
        if fixed is None:
            return ()
        found += [(name, order) for order in fixed(everywhere)]
    if len(found) > _MOST:
        return ()
    return tuple((name, without_absent(instance, order)) for name, order in found)


def ramps_of(problem: PlanningProblem, placement: Placement) -> Ramps | None:
    """Return how the orders of `orders_of` begin and end; None if there are none."""
    orders = orders_of(problem, placement)
    return _ramps(orders, placement) if orders else None


@lru_cache(maxsize=64)
def _ramps(orders: tuple[Order, ...], placement: Placement) -> Ramps:
    *most, flight = zip(*(_ramps_of(placement, order) for order in orders), strict=True)
    first, turn, last, wind = (np.max(counts, axis=0) for counts in most)
    return Ramps(first, turn, last, wind, np.min(flight, axis=0))


class FixedOrder(NamedTuple):
    """An order in which an instance may be scheduled."""

    #: its cost if nothing starts later than it can; 0 for a device span, which may be shorter then
    ticks: int
    method: str
    order: Order


def fixed_orders(problem: PlanningProblem, instance: Instance) -> list[FixedOrder]:
    """Return all orders in which an instance may be scheduled, by ascending ticks; none as in `orders_of`.

    Memory limits are not looked at. Of an instance with slices, each operation of `orders_of` is cut into its
    slices.
    """
    placement = instance.placement
    if not orders_of(problem, placement):
        return []
    names, n = _names(problem, placement), problem.batch.microbatches
    if instance.slices:
        named = [
            (name, order_of(instance, lambda _, whole=order: whole))  # type: ignore[misc]
            for name, order in _orders(names, Instance(placement, n, Costs(1, 1, 1)))
        ]
    else:
        backward, weight = (
            [int(instance.has(kind, s)) for s in range(placement.stages)] for kind in (OpKind.B, OpKind.W)
        )
        named = list(_orders(names, Instance(placement, n, Costs(1, backward, weight))))
    later = instance.objective is Objective.DEVICE_SPAN
    found = [
        FixedOrder(0 if later else cost(simulate(instance, order)), name, order) for name, order in named
    ]
    return sorted(found, key=lambda one: one.ticks)


def _ramps_of(placement: Placement, order: Order) -> Ramps:
    """Return how an order begins and ends, in which a device's last forward is of its last stage."""
    counts = np.zeros((4, placement.devices, placement.stages_per_device), np.int64)
    for device in range(placement.devices):
        rows, stages = order.operations[order.rows(device)], placement.stages_on(device)
        back, of_last = rows[:, 0] == OpKind.BW, rows[:, 1] == stages[-1]
        begins, ends = int(back.argmax()), len(rows) - int(back[::-1].argmin())
        turns, winds = (
            int((~back & of_last).argmax()) + 1,
            len(rows) - 1 - int((back & of_last)[::-1].argmax()),
        )
        assert turns <= begins
        assert ends <= winds
        for k, part in enumerate((rows[:begins], rows[turns:begins], rows[ends:], rows[ends:winds])):
            counts[k, device] = [(part[:, 1] == stage).sum() for stage in stages]
    first, turn, last, wind = counts
    return Ramps(first, turn, last, wind, flight=first)
