"""GPipe runs all forwards and then all backwards.

Source: Huang et al., "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism",
arXiv:1811.06965, section 2.3.
"""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order

from .family import check_placement, order_of_steps, step, within_limits


def gpipe_order(instance: Instance) -> Order:
    """Return the order of GPipe, in which every device holds the activations of all microbatches.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit is too small.
    """
    check_placement(instance, "gpipe", "linear")
    devices = [
        [
            step(instance, kind, device, m)
            for kind in (OpKind.F, OpKind.BW)
            for m in range(instance.microbatches)
        ]
        for device in range(instance.devices)
    ]
    return within_limits(instance, "gpipe", order_of_steps(devices))
