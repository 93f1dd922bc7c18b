"""Repeat a V building block and reorder its passes, compiled: a table of what each device runs per slot.

The passes of a device are numbered along the V: 0 and 1 are the lower and the upper F, 2 and 3 the
upper and the lower backward; `WEIGHT` is a W of either. A pass of a device comes in the order of the
microbatches, so a table of pass numbers says it all. Memory counts chunk activations: an F takes one, a
W (or a fused backward) frees one.

Source: Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv:2405.15362, section 3.3 (squeeze
and reorder).
"""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled_with_arrays

PERIOD = 6  #: slots between microbatches: two F's, two B's, two W's
WEIGHT = 4
_SECOND_HALF = 5  # of a fused backward
_IDLE = -1
_PASSES = 4


@compiled_with_arrays
def reordered(block: Ints, microbatches: int, backward: int) -> Ints:
    """Return the reordered table, shape (devices, slots); -1 is idle.

    Parameters
    ----------
    block
        Shape (4, devices): the slots of the first microbatch's passes.
    microbatches
        Number of microbatches.
    backward
        Slots of a backward pass: 1, or 2 where it is fused with its W.
    """
    table = _repeated(block, microbatches, backward)
    if backward == 1:
        _place_weights(table, np.zeros(len(table), np.int64))
    _pull_forward(table, microbatches, backward)
    if backward == 1:
        last = _last_forwards(table)
        _drop_weights(table, last)
        _pull_backwards(table, microbatches, last)
        _place_weights(table, last)
    return table


@compiled_with_arrays
def steady_peak(block: Ints, backward: int) -> int:
    """Return the most activations that a device holds while the block repeats."""
    lifetime = block.max() // PERIOD + 2
    table = _repeated(block, 2 * lifetime, backward)
    if backward == 1:
        _place_weights(table, np.zeros(len(table), np.int64))
    return int(_memory(table, backward).max())


@compiled_with_arrays
def _repeated(block: Ints, microbatches: int, backward: int) -> Ints:
    devices = block.shape[1]
    # the W's of a device may all come after its last B
    slots = block.max() + PERIOD * microbatches + 2 * microbatches + 2
    table = np.full((devices, slots), _IDLE, np.int64)
    for which in range(_PASSES):
        for device in range(devices):
            for m in range(microbatches):
                slot = block[which, device] + PERIOD * m
                table[device, slot] = which
                if which >= 2 and backward == 2:
                    table[device, slot + 1] = _SECOND_HALF
    return table


@compiled_with_arrays
def _place_weights(table: Ints, after: Ints) -> None:
    """Fill idle slots behind slot `after` of each device with the W's that are due."""
    for device in range(len(table)):
        due = 0
        for slot in range(table.shape[1]):
            if table[device, slot] in (2, 3):
                due += 1
            elif table[device, slot] == WEIGHT:
                due -= 1
            elif table[device, slot] == _IDLE and due > 0 and slot > after[device]:
                table[device, slot] = WEIGHT
                due -= 1


@compiled_with_arrays
def _drop_weights(table: Ints, after: Ints) -> None:
    for device in range(len(table)):
        for slot in range(after[device] + 1, table.shape[1]):
            if table[device, slot] == WEIGHT:
                table[device, slot] = _IDLE


@compiled_with_arrays
def _last_forwards(table: Ints) -> Ints:
    last = np.zeros(len(table), np.int64)
    for device in range(len(table)):
        for slot in range(table.shape[1]):
            if table[device, slot] in (0, 1):
                last[device] = slot
    return last


@compiled_with_arrays
def _pull_forward(table: Ints, microbatches: int, backward: int) -> None:
    """Move each pass to the earliest idle slot that its predecessors and the peak memory allow."""
    devices, slots = table.shape
    memory, takes = _memory(table, backward), _memory_taken(backward)
    peak = memory.max()
    end = np.zeros((_PASSES, devices, microbatches), np.int64)
    count = np.zeros((_PASSES + 1, devices), np.int64)
    for slot in range(slots):
        for device in range(devices):
            which = table[device, slot]
            if which in (_IDLE, _SECOND_HALF):
                continue
            m = count[which, device]
            count[which, device] += 1
            length = backward if which in (2, 3) else 1
            if which == WEIGHT:
                to = _earliest(table, device, _due(table, device, m), slot, length)
            elif which < 2:
                to = _earliest_within(table, memory, device, _ready(end, which, device, m), slot, peak)
            else:
                to = _earliest(table, device, _ready(end, which, device, m), slot, length)
            _move(table, device, slot, to, length)
            memory[device, to:slot] += takes[which]
            if which != WEIGHT:
                end[which, device, m] = to + length


@compiled_with_arrays
def _pull_backwards(table: Ints, microbatches: int, after: Ints) -> None:
    """Move the B's behind each device's last F to the earliest idle slots; no memory limit can bind there."""
    devices, slots = table.shape
    end = np.zeros((_PASSES, devices, microbatches), np.int64)
    count = np.zeros((_PASSES, devices), np.int64)
    for slot in range(slots):
        for device in range(devices):
            which = table[device, slot]
            if which in (_IDLE, WEIGHT):
                continue
            m = count[which, device]
            count[which, device] += 1
            to = slot
            if which >= 2 and slot > after[device]:
                ready = max(_ready(end, which, device, m), after[device] + 1)
                to = _earliest(table, device, ready, slot, 1)
                _move(table, device, slot, to, 1)
            end[which, device, m] = to + 1


@compiled_with_arrays
def _memory_taken(backward: int) -> Ints:
    """Return what each pass, W, and the second half of a fused backward adds to the activations held."""
    return np.array([1, 1, 0, 0, -1, 0]) if backward == 1 else np.array([1, 1, -1, -1, 0, 0])


@compiled_with_arrays
def _memory(table: Ints, backward: int) -> Ints:
    """Return the activations held on each device once the pass of each slot has started, (devices, slots)."""
    takes = _memory_taken(backward)
    memory = np.zeros_like(table)
    for device in range(len(table)):
        held = 0
        for slot in range(table.shape[1]):
            if table[device, slot] != _IDLE:
                held += takes[table[device, slot]]
            memory[device, slot] = held
    return memory


@compiled_with_arrays
def _ready(end: Ints, which: int, device: int, m: int) -> int:
    """Return the first slot after the pass's predecessor along the V, and after the microbatch before."""
    devices = end.shape[1]
    ready = end[which, device, m - 1] if m > 0 else 0
    down = which in (0, 2)
    before = device - 1 if down else device + 1
    if 0 <= before < devices:
        ready = max(ready, end[which, before, m])
    elif which > 0:
        ready = max(ready, end[which - 1, device, m])  # the leg turns here
    return int(ready)


@compiled_with_arrays
def _due(table: Ints, device: int, m: int) -> int:
    """Return the first slot for the device's W number `m`: after as many B's, and after the W before."""
    backwards, weights, due = 0, 0, 0
    for slot in range(table.shape[1]):
        if table[device, slot] in (2, 3):
            backwards += 1
            if backwards == m + 1:
                due = max(due, slot + 1)
        elif table[device, slot] == WEIGHT:
            weights += 1
            if weights == m:
                due = max(due, slot + 1)
        if backwards > m and weights >= m:
            break
    return due


@compiled_with_arrays
def _earliest(table: Ints, device: int, ready: int, slot: int, length: int) -> int:
    """Return the first of the slots ``ready..slot`` where a pass of this length that is at `slot` fits."""
    for to in range(ready, slot):
        if table[device, to] == _IDLE and (length == 1 or to + 1 == slot or table[device, to + 1] == _IDLE):
            return to
    return slot


@compiled_with_arrays
def _earliest_within(table: Ints, memory: Ints, device: int, ready: int, slot: int, peak: int) -> int:
    """Return the first idle slot of ``ready..slot`` from which on there is memory for one more activation."""
    to = slot
    for candidate in range(slot - 1, ready - 1, -1):
        if memory[device, candidate] >= peak:
            break
        if table[device, candidate] == _IDLE:
            to = candidate
    return to


@compiled_with_arrays
def _move(table: Ints, device: int, slot: int, to: int, length: int) -> None:
    which = table[device, slot]
    table[device, slot : slot + length] = _IDLE
    table[device, to] = which
    if length == 2:
        table[device, to + 1] = _SECOND_HALF
