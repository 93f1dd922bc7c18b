"""V schedules from a building block: V-Min, V-Half, V-ZB and 1F1B-V.

On a V of p devices, device d holds the lower stage d and the upper stage 2p - 1 - d. A building block says
when each device runs the four passes of one microbatch: F of the lower stage on the way down the V, F of the
upper stage on the way back up, then B of the upper and B of the lower stage. Times are counted in time units,
of which an F, a B and a W take one each. A microbatch takes six time units of each device, and the block is
repeated every six time units without conflict. How long activations live in a block determines the peak
memory. Squeezing and reordering (`v_reorder_kernel`) then close the gaps of the warm-up and of the cool-down.

The order is made for equal durations of F, B and W without communication, and does not depend on the costs of
the instance. With other costs, some schedules lose time in every period: V-Min where F, B and W differ,
V-Half on an even number of devices where B > F, and 1F1B-V where 2F > B + W. V-ZB loses time only once,
not in every period.

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
    """The time offsets from device to device between the passes of a building block.

    Parameters
    ----------
    down, up
        Time units from a pass to the same pass on the next device: `down` on the two ways down the V, one of
        F and one of B, and `up` on the two ways up.
    backward
        Time units of a backward pass: 1 for a B that is separate from its W, 2 for both fused.
    """

    down: int
    up: int
    backward: int = 1


V_MIN = Shape(1, 1)
V_HALF = Shape(2, 1)
V_ZB = Shape(4, 2)
ONE_F_ONE_B_V = Shape(1, 1, backward=2)


def v_min_order(instance: Instance) -> Order:
    """Return the order of V-Min, whose peak memory is about a third of 1F1B's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit is too small.
    """
    return _order(instance, "v-min", V_MIN)


def v_half_order(instance: Instance) -> Order:
    """Return the order of V-Half, whose peak memory is about half of 1F1B's.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit is too small.
    """
    return _order(instance, "v-half", V_HALF)


def v_zb_order(instance: Instance) -> Order:
    """Return the order of V-ZB, which has no bubble where F = B = W, and the peak memory of 1F1B.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit is too small.
    """
    return _order(instance, "v-zb", V_ZB)


def one_f_one_b_v_order(instance: Instance) -> Order:
    """Return the order of 1F1B-V, which fuses B and W and has about two thirds of 1F1B's peak memory.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not v, or the memory limit is too small.
    """
    return _order(instance, "1f1b-v", ONE_F_ONE_B_V)


def building_block(devices: int, shape: Shape) -> Ints:
    """Return the time units at which the passes start, shape (4, devices): F down, F up, B down, B up.

    Each of these four ways along the devices starts as early as it can. When all passes are repeated every
    period, no two passes of a device may share a time unit. Finally the B's on the way down are delayed if
    that lowers the peak memory.
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
    """Return arrays of possible starts of a fused backward on each device, relative to the first device.

    A fused backward takes two time units. From one device to the next the F's start one time unit later on
    one way of the V and one earlier on the other way, so the free time units differ from device to device.
    Start times that rise by two per device, and by three more at every third device, fall into free ones.
    """
    hops = np.arange(devices)
    return [2 * hops + 3 * ((hops + phase) // 3) for phase in range(3)]


def _earliest_leg(block: Ints, lengths: Sequence[int], leg: int, forms: list[Ints], ready: int) -> Ints:
    """Return the start times of the passes on the way number `leg`, as early as possible from `ready` on.

    `forms` are the possible start times relative to the first device on this way.
    """
    for start, form in product(range(ready, ready + 2 * PERIOD), forms):
        starts = start + (form[::-1] if leg % 2 else form)
        if not _meet(np.vstack([block[:leg], starts]), lengths):
            return starts
    raise AssertionError("every leg has a free start in a period")


def _meet(block: Ints, lengths: Sequence[int]) -> bool:
    """Return whether two passes of any device collide when the block repeats every `PERIOD` time units."""
    taken = np.vstack(
        [row + part for row, length in zip(block, lengths, strict=False) for part in range(length)]
    )
    ordered = np.sort(taken % PERIOD, axis=0)
    return bool((ordered[1:] == ordered[:-1]).any())


def _turned_for_memory(block: Ints, lengths: Sequence[int]) -> Ints:
    """Return the block with the B's of the upper stages delayed, if that lowers the peak memory.

    The delay is no longer than the slack before the B's of the lower stages, so that it costs no time.
    """
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
    """Return the operations of a device, given the numbers of its passes in sequence (`v_reorder_kernel`).

    A W belongs to the oldest B whose W has not run yet.
    """
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
