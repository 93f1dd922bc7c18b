"""V schedules that repeat a building block: V-Min, V-Half, V-ZB, 1F1B-V, and blocks chosen for the costs.

On a V of p devices, device d holds the lower stage d and the upper stage 2p - 1 - d. A building block says
when each device runs the four passes of one microbatch: F of the lower stage on the way down the V, F of the
upper stage on the way back up, then B of the upper and B of the lower stage. Times are counted in time units,
of which an F, a B and a W take one each. A microbatch takes six time units of each device, and the block is
repeated every six time units without conflict. How long activations live in a block determines the peak
memory. Squeezing and reordering (`v_blocks_kernel`) then close the gaps of the warm-up and of the cool-down.

The four families of the literature have one block each, which was made for equal durations of F, B and W
without communication. At other costs an order that follows from this block alone may lose time in every
period. Therefore V-Min, V-Half and V-ZB, whose B and W are separate, also try the *variants* of their block,
which begin some ways along the devices later at a turn of the V and take no more memory. The block and its
variants are run at the costs of the instance (`block_runs`), within the memory that the block alone takes,
and the cheapest order is kept. 1F1B-V fuses B and W, and does not depend on the costs.

Reordering moves the passes of the steady phase too, which may raise the memory there, but not above the peak
of the repeated block. Where a limit does not allow that, the steady phase stays as it is: V-Min of two
devices then holds three activations in place of four.

The family `v-adaptive` chooses among many more blocks: all that a few offsets between neighbouring devices
can form. On the two ways up the V, a pass starts one time unit after the same pass on the device below. On
the two ways down it starts one to five time units after the same pass on the device above; the number may be
smaller from some device on. Between two ways a microbatch may wait for up to five time units at a turn.
Blocks in which two passes of a device collide when the block repeats are left out. The blocks differ in how
long activations live, and so in how much memory a device holds, and in where a device idles at other costs.
All blocks that fit into memory are run at the costs of the instance, and the cheapest order is kept.

The functions for families raise errors as those of `family` do.

References
----------
Building blocks and the search for V schedules: Qi et al., "Pipeline Parallelism with Controllable Memory",
arXiv:2405.15362, section 3 and appendix A. The runs at the costs of the instance are tightpipe's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from tightpipe.base.errors import NoScheduleError
from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.params.search import VBlockParams
from tightpipe.params.solve_params import DEFAULTS

from .block_runs import best_orders, kinds_and_stages
from .family import cheapest, check_placement, within_limits
from .list_schedule import stage_costs
from .v_blocks_kernel import PERIOD, WEIGHT, reordered, steady_peak


@dataclass(frozen=True, slots=True)
class Shape:
    """The time offsets from device to device between the passes of a building block, in time units."""

    down: int  #: on the two ways down the V, one of F and one of B
    up: int  #: on the two ways up
    backward: int = 1  #: time units of a backward: 1 for a B that is separate from its W, 2 for both fused


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
    """Return the earliest start times of way number `leg` from `ready` on, in one of the relative `forms`."""
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
    """Return the block of a shape, and then its variants, which take no more memory; none if it is fused."""
    block = building_block(devices, shape)
    if shape.backward == 2:
        return [block]
    hops, peak = np.arange(devices), steady_peak(block, shape.backward)
    later = delayed_ways(shape.down * hops, shape.up * hops[::-1])
    return [block, *(other for other in later if steady_peak(other, shape.backward) <= peak)]


def delayed_ways(down: Ints, up: Ints) -> Iterator[Ints]:
    """Yield blocks, shape (4, devices), in which each way begins at any time within a period after the last.

    `down` and `up` have the starts on each device, relative to the earliest. No passes of a device collide.
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


_ALONE = 1  # time units of every pass


@lru_cache(maxsize=8)
def blocks_with_peaks(devices: int, splits: int) -> tuple[tuple[Ints, int], ...]:
    """Return all blocks, each with the most activations that a device holds; those of least memory first.

    On the ways down, the offset between neighbouring devices may change at one of at most `splits` devices.
    """
    up = np.arange(devices)[::-1]
    found = {
        block.tobytes(): block for down in _ways_down(devices, splits) for block in delayed_ways(down, up)
    }
    pairs = [(block, int(steady_peak(block, _ALONE))) for block in found.values()]
    return tuple(sorted(pairs, key=lambda pair: (pair[1], int(pair[0].max()))))


def _ways_down(devices: int, splits: int) -> Iterator[Ints]:
    """Yield the starts of the passes on a way down, relative to device 0, shape (devices,)."""
    hops = np.arange(devices)
    for offset in range(1, PERIOD):
        yield offset * hops
    places = {devices * part // (splits + 1) for part in range(1, splits + 1)}
    for split in sorted(places - {0, devices - 1}):
        for small, large in combinations(range(1, PERIOD), 2):
            yield np.where(hops <= split, large * hops, large * split + small * (hops - split))


def v_min_order(instance: Instance, params: VBlockParams = DEFAULTS.v_blocks) -> Order:
    """Return the order of V-Min, whose peak memory is about a third of 1F1B's."""
    return _order(instance, "v-min", V_MIN, params)


def v_half_order(instance: Instance, params: VBlockParams = DEFAULTS.v_blocks) -> Order:
    """Return the order of V-Half, whose peak memory is about half of 1F1B's."""
    return _order(instance, "v-half", V_HALF, params)


def v_zb_order(instance: Instance, params: VBlockParams = DEFAULTS.v_blocks) -> Order:
    """Return the order of V-ZB, which has no bubble where F = B = W, and the peak memory of 1F1B."""
    return _order(instance, "v-zb", V_ZB, params)


def one_f_one_b_v_order(instance: Instance) -> Order:
    """Return the order of 1F1B-V, which fuses B and W and has about two thirds of 1F1B's peak memory."""
    return _order(instance, "1f1b-v", ONE_F_ONE_B_V, DEFAULTS.v_blocks)


def _order(instance: Instance, family: str, shape: Shape, params: VBlockParams) -> Order:
    """Return the cheapest order of the block of a shape and of its variants."""
    check_placement(instance, family, "v")
    block = building_block(instance.devices, shape)
    alone = _order_of_block_alone(instance, family, block, shape)
    if shape.backward == 2:
        return alone
    limits = _memory_of(instance, steady_peak(block, shape.backward))
    blocks = variants(instance.devices, shape)
    others = best_orders(instance, blocks, params.family_work, params, limits)
    return cheapest(instance, [alone, *others[:1]])


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
    """Return the order of a block that is repeated, squeezed and, but for a `steady` phase, reordered."""
    table = reordered(block, instance.microbatches, shape.backward, steady)
    fused = shape.backward == 2
    devices = [_operations(instance, device, table[device], fused) for device in range(instance.devices)]
    return Order(np.concatenate(devices), np.cumsum([0, *map(len, devices)]))


def _operations(instance: Instance, device: int, passes: Ints, fused: bool) -> Ints:
    """Return kind, stage and microbatch of a device's passes (`v_blocks_kernel`); W's take B's in turn."""
    passes = passes[(passes >= 0) & (passes <= WEIGHT)]
    rows = np.zeros((len(passes), 3), np.int64)
    rows[:, :2] = kinds_and_stages(passes, device, instance.devices, OpKind.BW if fused else OpKind.B)
    for number in range(WEIGHT):
        places = np.flatnonzero(passes == number)
        rows[places, 2] = np.arange(len(places))
    weights, backwards = passes == WEIGHT, (passes == 2) | (passes == 3)
    rows[weights, 1:] = rows[backwards, 1:][: weights.sum()]
    return rows


def v_adaptive_order(instance: Instance, params: VBlockParams = DEFAULTS.v_blocks) -> Order:
    """Return the cheapest order that is found over all building blocks within the memory limits."""
    check_placement(instance, "v-adaptive", "v")
    orders = best_orders(instance, _within(instance, params.splits), params.adaptive_work, params)
    if not orders:
        raise NoScheduleError("v-adaptive finds no building block that fits into the memory limits")
    return cheapest(instance, orders[: params.retimed])


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
