"""V-Min, V-Half, V-ZB and 1F1B-V: a building block is repeated, squeezed and reordered.

The blocks are made for equal durations of F, B and W without communication (`v_building_block`). So an order
that follows from a block alone may lose time in every period at other costs. Where B and W are separate, the
block and its variants are therefore also run at the costs of the instance (`block_runs`), within the memory
that the block alone takes, and the cheapest order is kept. 1F1B-V does not depend on the costs.

Reordering moves the passes of the steady phase too, which may raise the memory there, but not above the
peak of the repeated block. Where a limit does not allow that, the steady phase stays as it is: V-Min of two
devices then holds three activations in place of four.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, section 3.
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
from .family import check_placement, within_limits
from .stage_costs import stage_costs
from .v_building_block import ONE_F_ONE_B_V, V_HALF, V_MIN, V_ZB, Shape, building_block, variants
from .v_reorder_kernel import WEIGHT, reordered, steady_peak


def v_min_order(instance: Instance, params: VBlockParams = DEFAULTS.v_blocks) -> Order:
    """Return the order of V-Min, whose peak memory is about a third of 1F1B's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit is too small.
    """
    return _order(instance, "v-min", V_MIN, params)


def v_half_order(instance: Instance, params: VBlockParams = DEFAULTS.v_blocks) -> Order:
    """Return the order of V-Half, whose peak memory is about half of 1F1B's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit is too small.
    """
    return _order(instance, "v-half", V_HALF, params)


def v_zb_order(instance: Instance, params: VBlockParams = DEFAULTS.v_blocks) -> Order:
    """Return the order of V-ZB, which has no bubble where F = B = W, and the peak memory of 1F1B.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit is too small.
    """
    return _order(instance, "v-zb", V_ZB, params)


def one_f_one_b_v_order(instance: Instance) -> Order:
    """Return the order of 1F1B-V, which fuses B and W and has about two thirds of 1F1B's peak memory.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit is too small.
    """
    return _order(instance, "1f1b-v", ONE_F_ONE_B_V, DEFAULTS.v_blocks)


def _order(instance: Instance, family: str, shape: Shape, params: VBlockParams) -> Order:
    """Return the cheapest order of the block of a shape and of its variants.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, the instance has no schedule, or the block alone does not fit into memory.
    """
    check_placement(instance, family, "v")
    block = building_block(instance.devices, shape)
    alone = _order_of_block_alone(instance, family, block, shape)
    if shape.backward == 2:
        return alone
    limits = _memory_of(instance, steady_peak(block, shape.backward))
    blocks = variants(instance.devices, shape)
    others = best_orders(instance, blocks, params.family_work, params, limits)
    return min([alone, *others[:1]], key=lambda order: cost(retime(instance, order)))


def _order_of_block_alone(instance: Instance, family: str, block: Ints, shape: Shape) -> Order:
    """Return the order of the block; its steady phase stays as it is only where memory asks for that."""
    try:
        return within_limits(instance, family, order_of_block(instance, block, shape))
    except NoScheduleError:
        return within_limits(instance, family, order_of_block(instance, block, shape, steady=True))


def _memory_of(instance: Instance, activations: int) -> Ints:
    """Return the memory that a number of activations takes on each device, of its larger stage."""
    p, forward = instance.devices, stage_costs(instance).delta[OpKind.F]
    return np.asarray(activations * np.maximum(forward[:p], forward[p:][::-1]))


def order_of_block(instance: Instance, block: Ints, shape: Shape, *, steady: bool = False) -> Order:
    """Return the order of a block of this shape that is repeated, squeezed and reordered in time units.

    `steady` says whether the passes of the steady phase stay as they are in the repeated block.
    """
    table = reordered(block, instance.microbatches, shape.backward, steady)
    fused = shape.backward == 2
    devices = [_operations(instance, device, table[device], fused) for device in range(instance.devices)]
    return Order(np.concatenate(devices), np.cumsum([0, *map(len, devices)]))


def _operations(instance: Instance, device: int, passes: Ints, fused: bool) -> Ints:
    """Return the operations of a device, given the numbers of its passes in sequence (`v_reorder_kernel`).

    A row has the kind, the stage and the microbatch of an operation. A W belongs to the oldest B whose W has
    not run yet.
    """
    passes = passes[(passes >= 0) & (passes <= WEIGHT)]
    lower, upper = device, 2 * instance.devices - 1 - device
    backward = OpKind.BW if fused else OpKind.B
    rows = np.zeros((len(passes), 3), np.int64)
    for number, of_pass in enumerate(
        ((OpKind.F, lower), (OpKind.F, upper), (backward, upper), (backward, lower))
    ):
        places = np.flatnonzero(passes == number)
        rows[places, :2], rows[places, 2] = of_pass, np.arange(len(places))
    weights, backwards = passes == WEIGHT, (passes == 2) | (passes == 3)
    rows[weights, 0], rows[weights, 1:] = OpKind.W, rows[backwards, 1:][: weights.sum()]
    return rows
