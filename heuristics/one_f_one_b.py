"""1F1B and eager 1F1B: after a warm-up, every device runs forwards and backwards in turn.

Device i of p warms up with p - 1 - i forwards, the eager form with twice as many, which hides the
communication at the price of memory.

Sources: Narayanan et al., "PipeDream", arXiv:1806.03377, section 3.2, with the flush of
Narayanan et al., arXiv:2006.09503, section 3; the eager form: Zhuang et al., "On Optimizing the Communication
of Model Parallelism", arXiv:2211.05322, section 4.
"""

from __future__ import annotations

from tightpipe.instance import Instance
from tightpipe.operation import OpKind
from tightpipe.schedule import Order

from .family import check_placement, one_forward_one_backward, order_of_steps, step, within_limits


def one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of 1F1B; device i holds at most min(p - i, n) activations.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit too small.
    """
    return _order(instance, "1f1b", 1)


def eager_one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of eager 1F1B; device i holds at most min(2(p - i) - 1, n) activations.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit too small.
    """
    return _order(instance, "eager-1f1b", 2)


def _order(instance: Instance, family: str, per_hop: int) -> Order:
    check_placement(instance, family, "linear")
    p, n = instance.devices, instance.microbatches
    devices = [
        one_forward_one_backward(
            [step(instance, OpKind.F, device, m) for m in range(n)],
            [step(instance, OpKind.BW, device, m) for m in range(n)],
            min(per_hop * (p - 1 - device), n),
        )
        for device in range(p)
    ]
    return within_limits(instance, family, order_of_steps(devices))
