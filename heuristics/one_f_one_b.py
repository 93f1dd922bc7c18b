"""1F1B and eager 1F1B: after a warm-up, every device runs one forward and one backward in turn.

Device i of p warms up with p - 1 - i forwards. In the eager form it warms up with twice as many, which hides
communication behind computation but takes more memory.

Sources: Narayanan et al., "PipeDream", arXiv:1806.03377, section 3.2, with the flush of
Narayanan et al., arXiv:2006.09503, section 3; the eager form: Zhuang et al., "On Optimizing the Communication
of Model Parallelism", arXiv:2211.05322, section 4.
"""

from __future__ import annotations

from tightpipe.core.errors import NoScheduleError
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order

from .family import check_placement, one_forward_one_backward, order_of_steps, step, within_limits


def one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of 1F1B; device i holds at most min(p - i, n) activations.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit is too small.
    """
    return _order(instance, "1f1b", 1)


def eager_one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of eager 1F1B; device i holds at most min(2(p - i) - 1, n) activations.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit is too small.
    """
    return _order(instance, "eager-1f1b", 2)


def two_buffered_order(instance: Instance) -> Order:
    """Return the order of 1F1B over several iterations without a flush between them (PipeDream-2BW).

    Two versions of the weights are enough if an iteration has at least as many microbatches as there are
    devices.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, the memory limit is too small, or an iteration has fewer microbatches
        than there are devices.

    References
    ----------
    Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", arXiv:2006.09503, section 3.1.
    """
    _check_depth(instance, "1f1b", 0)
    return _order(instance, "1f1b", 1)


def eager_two_buffered_order(instance: Instance) -> Order:
    """Return the order of eager 1F1B over several iterations without a flush between them.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, the memory limit is too small, or an iteration does not have more
        microbatches than there are devices.
    """
    _check_depth(instance, "eager-1f1b", 1)
    return _order(instance, "eager-1f1b", 2)


def _check_depth(instance: Instance, family: str, margin: int) -> None:
    block, p = instance.microbatches // instance.iterations, instance.devices
    if p + margin > block:
        rule = f"needs at least {p + margin} microbatches per iteration on {p} devices, not {block}"
        raise NoScheduleError(f"{family} without a flush {rule}: two versions of the weights must do")


def _order(instance: Instance, family: str, per_hop: int) -> Order:
    check_placement(instance, family, "linear")
    p, n = instance.devices, instance.microbatches
    devices = [
        one_forward_one_backward(
            [step(instance, OpKind.F, device, m) for m in range(n)],
            [step(instance, OpKind.BW, device, m) for m in range(n)],
            min(per_hop * (p - 1 - device), n // instance.iterations),
        )
        for device in range(p)
    ]
    return within_limits(instance, family, order_of_steps(devices))
