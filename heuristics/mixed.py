"""A steady state of fused backwards between ramps of split ones, made from orders of other families.

Where a fused backward takes less time than its B and its W one after the other, a device gains with every
backward that it fuses. It loses where another device waits for the B, which is mostly in the warm-up and in
the cool-down: there B's pass from device to device, and W's fill the gaps. So the best known schedules fuse
most backwards in between, and split some in both ramps.

The orders of several families keep their sequences of F's and B's. They are run at the costs of the instance
(`block_runs`): a backward of a fused family is *opened* where another device waits for its B, one of a split
family is fused where none does, and W's fill gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tightpipe.base.errors import NoScheduleError
from tightpipe.model.instance import Instance
from tightpipe.model.schedule import Order
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.solve_params import DEFAULTS, SolveParams

from .block_runs import cheapest_run
from .both_ends import due_date_or_idle_free_order
from .family import eager_one_f_one_b_order, one_f_one_b_order, zb_h2_order
from .greedy_v import zb_auto_order
from .interleaved import interleaved_order
from .list_schedule import list_order
from .modulo import modulo_order
from .v_beat import v_beat_order
from .v_families import one_f_one_b_v_order

_SECONDS = 1.0  # for packing the ends of V-Beat, see `v_tails`


def mixed_order(instance: Instance, params: SolveParams = DEFAULTS) -> Order:
    """Return the cheapest order found that fuses some backwards and splits others.

    Where fused backwards save no time, it is the cheapest order of the families. Raise an InfeasibleError if
    the instance has no schedule. Raise a NoScheduleError if no family has an order within the memory limits.
    """
    budget, orders = replace(UNLIMITED, params=params), []
    for family in _families(instance.placement.name, params, budget):
        with suppress(NoScheduleError):
            orders.append(family(instance))
    if not orders:
        raise NoScheduleError("mixed has no family whose order fits into the memory limits")
    return cheapest_run(instance, orders, params.v_blocks)


def _families(placement: str, params: SolveParams, budget: Budget) -> tuple[Callable[[Instance], Order], ...]:
    anywhere = (
        partial(due_date_or_idle_free_order, budget=budget),
        partial(list_order, budget=budget),
        partial(modulo_order, params=params),
    )
    in_order: dict[str, tuple[Callable[[Instance], Order], ...]] = {
        "linear": (
            *(one_f_one_b_order, eager_one_f_one_b_order, zb_h2_order),
            partial(zb_auto_order, params=params),
        ),
        "v": (partial(v_beat_order, budget=budget.within(_SECONDS)), one_f_one_b_v_order),
        "loop": (partial(interleaved_order, params=params.interleaved),),
    }
    return *in_order.get(placement, ()), *anywhere
