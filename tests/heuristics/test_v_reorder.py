"""Reordering of V building blocks: what a table of passes keeps, and when each pass runs."""

from __future__ import annotations

import numpy as np
import pytest

from tightpipe.heuristics.v_blocks_kernel import WEIGHT, reordered, steady_peak
from tightpipe.heuristics.v_families import ONE_F_ONE_B_V, V_HALF, V_MIN, V_ZB, Shape, building_block
from tightpipe.kernels.arrays import Ints

MICROBATCHES = 7
SHAPES = pytest.mark.parametrize("shape", [V_MIN, V_HALF, V_ZB, ONE_F_ONE_B_V])
DEVICES = pytest.mark.parametrize("devices", [1, 2, 3, 6])
STEADY = pytest.mark.parametrize("steady", [False, True], ids=["moved", "steady"])


def table_of(devices: int, shape: Shape, steady: bool) -> Ints:
    return reordered(building_block(devices, shape), MICROBATCHES, shape.backward, steady)


def slots(table: Ints, device: int, which: int) -> Ints:
    return np.flatnonzero(table[device] == which)


@STEADY
@SHAPES
@DEVICES
def test_every_pass_of_every_microbatch_runs_once(shape: Shape, devices: int, steady: bool) -> None:
    table = table_of(devices, shape, steady)
    weights = 2 * MICROBATCHES if shape.backward == 1 else 0
    for device in range(devices):
        counts = [len(slots(table, device, which)) for which in range(WEIGHT + 1)]
        assert counts == [MICROBATCHES] * 4 + [weights]


@STEADY
@SHAPES
@DEVICES
def test_passes_follow_the_v_and_weights_their_backwards(shape: Shape, devices: int, steady: bool) -> None:
    table = table_of(devices, shape, steady)
    down, up = list(range(devices)), list(reversed(range(devices)))
    route = [(which, device) for which in range(4) for device in (up if which % 2 else down)]
    lengths = np.array([shape.backward if which >= 2 else 1 for which, _ in route])
    starts = np.array([slots(table, device, which) for which, device in route])
    assert (np.diff(starts, axis=0) >= lengths[:-1, None]).all()
    for device in range(devices):
        backwards = np.sort(np.concatenate([slots(table, device, which) for which in (2, 3)]))
        weights = slots(table, device, WEIGHT)
        assert (weights > backwards[: len(weights)]).all()


@STEADY
@SHAPES
@DEVICES
def test_no_device_holds_more_than_while_the_block_repeats(shape: Shape, devices: int, steady: bool) -> None:
    table = table_of(devices, shape, steady)
    block = building_block(devices, shape)
    frees = [0, 0, -1] if shape.backward == 1 else [-1, -1, 0]
    takes = np.array([1, 1, *frees, 0, 0])  # the last one for idle slots, whose number is -1
    held = np.cumsum(takes[table], axis=1)
    assert held.max() <= steady_peak(block, shape.backward)
    assert (held[:, -1] == 0).all()


@STEADY
@SHAPES
@DEVICES
def test_reordering_closes_gaps(shape: Shape, devices: int, steady: bool) -> None:
    block = building_block(devices, shape)
    last = max(slots(table_of(devices, shape, steady), device, 3).max() for device in range(devices))
    assert last <= block[3].max() + 6 * (MICROBATCHES - 1)
