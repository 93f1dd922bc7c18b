"""The compiled loop that finds the longest paths between the devices of an order."""

from __future__ import annotations

import numpy as np

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled_with_arrays
from .operation import OpKind
from .simulate_kernel import paired_time

_F, _W = int(OpKind.F), int(OpKind.W)
NO_PATH = -(2**60)


@compiled_with_arrays
def paths_from(
    source: int,
    sources: int,
    operations: Ints,
    offsets: Ints,
    joined: Ints,
    duration: Ints,
    lags: Ints,
    peers: Ints,
    route: Ints,
    overlapped: Ints,
    occupancy: int,
    sequence: Ints,
) -> tuple[Ints, Ints]:
    """Return the longest paths, in ticks, from the first starts of some devices to all firsts and lasts.

    The sources are the devices from `source` on, `sources` in number. A path goes from the start of the first
    operation of its source along the operations that have to follow one another, with their durations and
    communication. All paths of an operation are found together, in one pass over the operations in a sequence
    in which each comes after those that it waits for. So the time is that of one simulation per source at
    most, and less because the numbers of the sources lie next to each other in memory.

    Parameters
    ----------
    source, sources
        The first source, and the number of sources.
    sequence
        The first row of each slot, in the sequence that `earliest_times` returns.
    operations, offsets, joined, duration, lags, peers, route, overlapped, occupancy
        As in `earliest_times`.

    Returns
    -------
    to_first, to_last
        Ticks to the start of the first operation and to the end of the last operation of each device, each of
        shape (sources, devices); at most `NO_PATH` plus the length of some path where there is no path.
    """
    devices = len(offsets) - 1
    home = np.empty(len(operations), np.int64)
    for device in range(devices):
        home[offsets[device] : offsets[device + 1]] = device
    # when the result of F, and of B or BW, leaves its device; nothing but the device itself waits for a W
    sent = np.full((2, duration.shape[1], len(route), sources), NO_PATH, np.int64)
    last = np.full((devices if occupancy > 0 else 1, devices, sources), NO_PATH, np.int64)
    free = np.full((devices, sources), NO_PATH, np.int64)
    to_first = np.full((sources, devices), NO_PATH, np.int64)
    to_last = np.full((sources, devices), NO_PATH, np.int64)
    begin = np.empty(sources, np.int64)
    for i in sequence:
        device = home[i]
        if i == offsets[device] and source <= device < source + sources:
            free[device, device - source] = 0
        kind, stage = operations[i, 0], operations[i, 1]
        time, rows = duration[kind, stage], 1
        if joined[i]:
            other, its_stage = operations[i + 1, 0], operations[i + 1, 1]
            time, rows = paired_time(duration, overlapped[device], kind, stage, other, its_stage), 2
        for k in range(sources):
            begin[k] = free[device, k]
        for j in range(i, i + rows):
            _wait(operations[j], duration.shape[1], lags, route, sent, begin)
        if i == offsets[device]:
            to_first[:, device] = begin
        for k in range(sources):
            free[device, k] = begin[k] + time
        for j in range(i, i + rows):
            kind, stage, m = operations[j, 0], operations[j, 1], operations[j, 2]
            if kind == _W:
                continue
            leaves = sent[min(kind, 1), stage, m]
            for k in range(sources):
                leaves[k] = free[device, k]
            receiver = peers[kind, route[m], stage]
            if occupancy > 0 and receiver >= 0:
                before = last[device, receiver]
                for k in range(sources):
                    leaves[k] = before[k] = max(leaves[k], before[k] + occupancy)
    for device in range(devices):
        to_last[:, device] = free[device]
    return to_first, to_last


@compiled_with_arrays
def _wait(operation: Ints, stages: int, lags: Ints, route: Ints, sent: Ints, begin: Ints) -> None:
    """Let the times `begin` of all sources wait for the message or result that an operation needs."""
    kind, stage, m = operation[0], operation[1], operation[2]
    if kind == _F:
        if stage == 0:
            return
        needed = sent[0, stage - 1, m]
    elif kind == _W:
        return  # its B has run before on the same device
    elif stage == stages - 1:
        needed = sent[0, stage, m]
    else:
        needed = sent[1, stage + 1, m]
    lag = lags[kind, route[m], stage]
    for k in range(len(begin)):
        begin[k] = max(begin[k], needed[k] + lag)
