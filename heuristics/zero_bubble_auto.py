"""The automatic zero-bubble schedule: the best result of a greedy algorithm in eight variants.

With a memory limit of p activations it is called ZB-1p, with 2p activations ZB-2p.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 3.1.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.model.simulate import simulate
from tightpipe.params.solve_params import DEFAULTS, SolveParams

from .block_runs import cheapest_run
from .family import check_placement
from .list_schedule import stage_costs
from .zero_bubble_auto_kernel import Problem, Variant, run_variant

_SPLIT = (OpKind.F, OpKind.B, OpKind.W)


def zb_auto_order(instance: Instance, params: SolveParams = DEFAULTS) -> Order:
    """Return the order of the variant that costs least at earliest start times.

    Where fused backwards save time, its sequences of F's and B's run again, as those of `greedy-v` do. Raise
    an InputError or an InfeasibleError if the placement is not linear, or the memory limit is too small for
    one microbatch.
    """
    check_placement(instance, "zb-auto", "linear")
    problem = _problem(instance)
    sequences = [run_variant(problem, Variant(*flags)) for flags in product((True, False), repeat=3)]
    orders = [_order(instance, kinds) for kinds in {kinds.tobytes(): kinds for kinds in sequences}.values()]
    cheapest = min(orders, key=lambda order: cost(simulate(instance, order)))
    return cheapest_run(instance, [cheapest], params.v_blocks)


def _problem(instance: Instance) -> Problem:
    """Return the instance in arrays, with the consecutive stages of each device added up to one stage."""
    costs = stage_costs(instance)
    work = np.array([instance.work(d) for d in range(instance.devices)])
    return Problem(
        duration=_per_device(instance, costs.duration),
        delta=_per_device(instance, costs.delta),
        lag=_per_device(instance, costs.lag),
        limit=costs.limit,
        handicap=work.max() - work,
        microbatches=instance.microbatches,
    )


def _per_device(instance: Instance, numbers: Ints) -> Ints:
    """Return an array of shape (3, stages), summed over each device's stages: (3, devices)."""
    return np.asarray(numbers.reshape(len(_SPLIT), instance.devices, -1).sum(axis=2))


def _order(instance: Instance, kinds: Ints) -> Order:
    """Return the order that an array of kinds, shape (devices, 3n), describes.

    The operations of each kind run in the sequence of the microbatches.
    """
    microbatch = np.zeros_like(kinds)
    for kind in _SPLIT:
        is_kind = kinds == kind
        microbatch[is_kind] = (np.cumsum(is_kind, axis=1) - 1)[is_kind]
    chunks = instance.placement.stages_per_device
    up, first = np.arange(chunks), chunks * np.arange(instance.devices)[:, None, None]
    stage = first + np.where(kinds[..., None] == OpKind.F, up, up[::-1])
    operations = np.stack(np.broadcast_arrays(kinds[..., None], stage, microbatch[..., None]), axis=-1)
    return Order(operations, np.arange(instance.devices + 1) * kinds.shape[1] * chunks)
