"""V schedules from a building block: V-Min, V-Half, V-ZB and 1F1B-V.

A building block says when a device runs the four passes of one microbatch: down the V (lower F), up
(upper F), down again (upper B) and up (lower B), in slots of one F. Repeated every six slots, as many
as a microbatch takes of a device, it fills the time without conflict, and how long its activations
live fixes the peak memory. Squeezing and reordering (`v_reorder`) then close the gaps of the warm-up
and of the cool-down. The order is made for F = B = W without communication and does not depend on the
instance's costs. Where these are others, time can be lost in every period: by V-Min where F, B and W
differ, by V-Half on an even number of devices where B > F, by 1F1B-V where 2F > B + W. V-ZB loses it once.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, section 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints

from .family import check_placement, within_limits
from .v_reorder_kernel import PERIOD, WEIGHT, reordered, steady_peak


@dataclass(frozen=True, slots=True)
class Shape:
    """How the passes of a building block move along the devices.

    Parameters
    ----------
    down, up
        Slots from one device to the next on the two legs down the V, and on the two up.
    backward
        Slots of a backward pass: 1 for B apart from W, 2 for both fused.
    """

    down: int
    up: int
    backward: int = 1


V_MIN = Shape(1, 1)
V_HALF = Shape(2, 1)
V_ZB = Shape(4, 2)
ONE_F_ONE_B_V = Shape(1, 1, backward=2)


def v_min_order(instance: Instance) -> Order:
    """Return the order of V-Min: the peak is about a third of 1F1B's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit too small.
    """
    return _order(instance, "v-min", V_MIN)


def v_half_order(instance: Instance) -> Order:
    """Return the order of V-Half: the peak is about half of 1F1B's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit too small.
    """
    return _order(instance, "v-half", V_HALF)


def v_zb_order(instance: Instance) -> Order:
    """Return the order of V-ZB: no bubble where F = B = W, and the peak of 1F1B.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit too small.
    """
    return _order(instance, "v-zb", V_ZB)


def one_f_one_b_v_order(instance: Instance) -> Order:
    """Return the order of 1F1B-V, whose backward is fused: the peak is about two thirds of 1F1B's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit too small.
    """
    return _order(instance, "1f1b-v", ONE_F_ONE_B_V)


def building_block(devices: int, shape: Shape) -> Ints:
    """Return the slots at which the passes start, shape (4, devices): F down, F up, B down, B up.

    Each leg starts as soon as no pass of any device then meets another one, modulo the period.
    """
    block = np.zeros((4, devices), np.int64)
    lengths = (1, 1, shape.backward, shape.backward)
    ready = 0
    for leg, length in enumerate(lengths):
        gap = shape.up if leg % 2 else shape.down
        forms = _fused_forms(devices) if length == 2 else [gap * np.arange(devices)]
        block[leg] = _earliest_leg(block, lengths, leg, forms, ready)
        ready = int(block[leg].max()) + length
    return _turned_for_memory(block, lengths)


def _fused_forms(devices: int) -> list[Ints]:
    """Return ways along the devices for fused backwards, which take two slots.

    The F's move by one slot a device, one leg ahead of and one against the B's, so that what is free
    changes from device to device; three slots more on every third device keep to it.
    """
    hops = np.arange(devices)
    return [2 * hops + 3 * ((hops + phase) // 3) for phase in range(3)]


def _earliest_leg(block: Ints, lengths: Sequence[int], leg: int, forms: list[Ints], ready: int) -> Ints:
    """Return the slots of a leg that starts as early as it can from `ready` on, in one of the forms."""
    for start, form in product(range(ready, ready + 2 * PERIOD), forms):
        slots = start + (form[::-1] if leg % 2 else form)
        if not _meet(np.vstack([block[:leg], slots]), lengths):
            return slots
    raise AssertionError("every leg has a free start in a period")


def _meet(block: Ints, lengths: Sequence[int]) -> bool:
    """Whether two passes of a device, repeated every period, take the same slot."""
    taken = np.vstack(
        [row + part for row, length in zip(block, lengths, strict=False) for part in range(length)]
    )
    ordered = np.sort(taken % PERIOD, axis=0)
    return bool((ordered[1:] == ordered[:-1]).any())


def _turned_for_memory(block: Ints, lengths: Sequence[int]) -> Ints:
    """Delay the upper B's within the lower ones' slack, which costs no time, if that saves an activation."""
    slack = int(block[3, -1] - block[2, -1]) - lengths[2]
    delays = np.array([[0], [0], [1], [0]]) * np.arange(slack + 1)
    later = [block + delay[:, None] for delay in delays.T]
    return min((b for b in later if not _meet(b, lengths)), key=lambda b: steady_peak(b, lengths[2]))


def _order(instance: Instance, family: str, shape: Shape) -> Order:
    check_placement(instance, family, "v")
    table = reordered(building_block(instance.devices, shape), instance.microbatches, shape.backward)
    devices = [
        _operations(instance, device, table[device], shape.backward == 2)
        for device in range(instance.devices)
    ]
    return within_limits(instance, family, Order.from_lists(devices))


def _operations(instance: Instance, device: int, passes: Ints, fused: bool) -> list[tuple[OpKind, int, int]]:
    """Name the passes of a device; a W belongs to the oldest B whose W is still due."""
    lower, upper = device, 2 * instance.devices - 1 - device
    backward = OpKind.BW if fused else OpKind.B
    what = ((OpKind.F, lower), (OpKind.F, upper), (backward, upper), (backward, lower))
    done = [0] * len(what)
    due: deque[tuple[int, int]] = deque()
    operations = []
    for number in passes[passes >= 0].tolist():
        if number == WEIGHT:
            operations.append((OpKind.W, *due.popleft()))
        elif number < WEIGHT:
            kind, stage = what[number]
            operations.append((kind, stage, done[number]))
            if kind is OpKind.B:
                due.append((stage, done[number]))
            done[number] += 1
    return operations
