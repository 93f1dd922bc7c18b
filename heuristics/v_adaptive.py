"""V schedules whose building block is chosen for the costs and the memory limits of the instance.

All blocks of `v_blocks` that fit into memory are run at the costs of the instance (`block_runs`), and the
cheapest order is kept.

Source: the search for V schedules in Qi et al., "Pipeline Parallelism with Controllable Memory",
arXiv:2405.15362, section 3; the runs at the costs of the instance are tightpipe's own.
"""

from __future__ import annotations

import numpy as np

from tightpipe.core.errors import NoScheduleError
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.operation import OpKind
from tightpipe.core.params.heuristic import VBlockParams
from tightpipe.core.params.solve_params import DEFAULTS
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints

from .block_runs import best_orders
from .family import check_placement
from .stage_costs import stage_costs
from .v_blocks import blocks_with_peaks


def v_adaptive_order(instance: Instance, params: VBlockParams = DEFAULTS.v_blocks) -> Order:
    """Return the cheapest order that is found over all building blocks within the memory limits.

    Raises
    ------
    InputError, InfeasibleError
        If the placement is not v, or the instance has no schedule.
    NoScheduleError
        If no block fits into the memory limits.
    """
    check_placement(instance, "v-adaptive", "v")
    orders = best_orders(instance, _within(instance, params.splits), params.adaptive_work, params)
    if not orders:
        raise NoScheduleError("v-adaptive finds no building block that fits into the memory limits")
    return min(orders[: params.retimed], key=lambda order: cost(retime(instance, order)))


def _within(instance: Instance, splits: int) -> list[Ints]:
    """Return the blocks that may fit into memory; those that make the most of it come first.

    The last ones hold one activation more than the limit. They may fit, because a B may free memory before
    its W does.
    """
    costs, p = stage_costs(instance), instance.devices
    blocks = sorted(blocks_with_peaks(p, splits), key=lambda pair: -pair[1])
    if instance.memory_limit(0) is None:
        return [block for block, _ in blocks]
    forward = costs.delta[OpKind.F]
    smaller = np.maximum(1, np.minimum(forward[:p], forward[p:][::-1]))
    most = int((costs.limit // smaller).max())
    within = [block for block, peak in blocks if peak <= most]
    return within + [block for block, peak in blocks if peak == most + 1]
