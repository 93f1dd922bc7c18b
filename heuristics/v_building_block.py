"""The building blocks of V-Min, V-Half, V-ZB and 1F1B-V, and their variants.

On a V of p devices, device d holds the lower stage d and the upper stage 2p - 1 - d. A building block says
when each device runs the four passes of one microbatch: F of the lower stage on the way down the V, F of the
upper stage on the way back up, then B of the upper and B of the lower stage. Times are counted in time units,
of which an F, a B and a W take one each. A microbatch takes six time units of each device, and the block is
repeated every six time units without conflict. How long activations live in a block determines the peak
memory. Squeezing and reordering (`v_reorder_kernel`) then close the gaps of the warm-up and of the cool-down.

The *variants* of a block begin some ways along the devices later at a turn of the V, and take no more memory.
Where F, B and W take equally long, the first block costs least. With other costs it may lose time in every
period that a variant does not lose.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tightpipe.kernels.arrays import Ints

from .v_reorder_kernel import PERIOD, steady_peak


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


def variants(devices: int, shape: Shape) -> list[Ints]:
    """Return the block of a shape, and then its variants, which take no more memory.

    A block with fused backwards has no variants.
    """
    block = building_block(devices, shape)
    if shape.backward == 2:
        return [block]
    hops, peak = np.arange(devices), steady_peak(block, shape.backward)
    later = delayed_ways(shape.down * hops, shape.up * hops[::-1])
    return [block, *(other for other in later if steady_peak(other, shape.backward) <= peak)]


def delayed_ways(down: Ints, up: Ints) -> Iterator[Ints]:
    """Yield blocks, shape (4, devices), in which each way begins at any time within a period after the last.

    Blocks in which two passes of a device collide are left out.

    Parameters
    ----------
    down, up
        Starts of the passes on a way down and on a way up the V, for each device, relative to the earliest.
    """
    for forward_up in _later(down[-1] + 1 + up, [down]):
        for backward_down in _later(forward_up[0] + 1 + down, [down, forward_up]):
            for backward_up in _later(backward_down[-1] + 1 + up, [down, forward_up, backward_down]):
                yield np.stack([down, forward_up, backward_down, backward_up])


def _later(way: Ints, before: list[Ints]) -> Iterator[Ints]:
    """Yield the way, delayed by less than a period, where no pass collides with one of the ways `before`."""
    taken = np.stack(before) % PERIOD
    for delay in range(PERIOD):
        if not ((way + delay) % PERIOD == taken).any():
            yield way + delay
