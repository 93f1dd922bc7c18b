"""Building blocks of V schedules: all that a few offsets between neighbouring devices can form.

A building block says when each device runs the four passes of one microbatch (`v_building_block`). On the two
ways up the V, a pass starts one time unit after the same pass on the device below. On the two ways down it
starts one to five time units after the same pass on the device above; the number may be smaller from some
device on. Between two ways a microbatch may wait for up to five time units at a turn. Blocks in which two
passes of a device collide when the block repeats are left out. What differs between blocks is how long
activations live, and so how much memory a device holds, and where a device idles at other costs.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, section 3 and
appendix A.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

import numpy as np

from tightpipe.kernels.arrays import Ints

from .v_building_block import delayed_ways
from .v_reorder_kernel import PERIOD, steady_peak

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
