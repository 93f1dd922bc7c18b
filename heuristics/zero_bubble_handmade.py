"""Hand-made zero-bubble schedules: 1F1B with the backward split into B and W, and the W's postponed.

A W is *pending* when its B has run but the W has not. In ZB-H1, device i of p keeps up to i W's pending, so
that every device holds about as much memory as device 0 of 1F1B. ZB-H2 doubles the warm-up and the number of
pending W's. Schedule visualisers draw ZB-H1 under the name "ZB-1P", whereas ZB-1p in the tables of the paper
is the automatic schedule at a memory limit of p activations.

Source: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241, section 2.
"""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order

from .family import Step, check_placement, one_forward_one_backward, order_of_steps, step, within_limits


def zb_h1_order(instance: Instance) -> Order:
    """Return the order of ZB-H1; device i holds at most p - i activations and i pending W's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit is too small.
    """
    return _order(instance, "zb-h1", 1)


def zb_1p_fixed_order(instance: Instance) -> Order:
    """Return the order of ZB-H1, which schedule visualisers call ZB-1P.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit is too small.
    """
    return _order(instance, "zb-1p-fixed", 1)


def zb_h2_order(instance: Instance) -> Order:
    """Return the order of ZB-H2; device i holds at most 2(p - i) - 1 activations and 2i pending W's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not linear, or the memory limit is too small.
    """
    return _order(instance, "zb-h2", 2)


def _order(instance: Instance, family: str, per_hop: int) -> Order:
    check_placement(instance, family, "linear")
    p, n = instance.devices, instance.microbatches
    devices = []
    for device in range(p):
        warm_up = min(per_hop * (p - 1 - device), n)
        forwards = [step(instance, OpKind.F, device, m) for m in range(n)]
        backwards = _backwards(instance, device, n - warm_up, per_hop * device)
        devices.append(one_forward_one_backward(forwards, backwards, warm_up))
    return within_limits(instance, family, order_of_steps(devices))


def _backwards(instance: Instance, device: int, steady: int, kept_back: int) -> list[Step]:
    """Return one step for each microbatch: its B, and the W's that run directly after that B.

    Up to `kept_back` W's stay pending in the steady state, which has `steady` B's. In the cool-down one W
    follows each B, and the remaining W's follow the last B.
    """
    n, done = instance.microbatches, 0
    steps = []
    for m in range(n):
        turn = step(instance, OpKind.B, device, m)
        if m >= steady or m - done >= kept_back:
            turn += step(instance, OpKind.W, device, done)
            done += 1
        steps.append(turn)
    for m in range(done, n):
        steps[-1] += step(instance, OpKind.W, device, m)
    return steps
