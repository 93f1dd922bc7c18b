"""Compiled loops that find the longest paths between the devices of an order.

All paths that end at an operation are found together, in one pass over the operations in the sequence of
their starts. A message has a *place*, which a later message takes over after it has arrived. Few messages are
under way at a time, so all places stay in the processor's cache, however many operations there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled_with_arrays
from .operation import OpKind
from .simulate_kernel import paired_time

_F, _W = int(OpKind.F), int(OpKind.W)
NO_PATH = -(2**60)
_NONE = -1


class Traffic(NamedTuple):
    """What each of the N operations of an order waits for and sends, and how long its slot takes."""

    home: Ints  # (N,) device
    ticks: Ints  # (N,) how long the operation's slot takes
    taken: Ints  # (N,) place of the message or result that the operation waits for, -1 for none
    lag: Ints  # (N,) communication time of that message in ticks
    given: Ints  # (N,) place of the message or result that another operation waits for, -1 for none
    receiver: Ints  # (N,) device to which that message goes, -1 where it stays on the device
    places: int


@compiled_with_arrays
def traffic_of(
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
) -> Traffic:
    """Return what the operations of an order wait for and send.

    Parameters
    ----------
    operations, offsets, joined, duration, lags, peers, route, overlapped, occupancy
        As in `earliest_times`.
    sequence
        The first row of each slot, in a sequence in which each slot comes after those that it waits for.
    """
    size, stages = len(operations), duration.shape[1]
    home, ticks, lag = np.empty(size, np.int64), np.empty(size, np.int64), np.zeros(size, np.int64)
    taken, given, receiver = np.full(size, _NONE), np.full(size, _NONE), np.full(size, _NONE)
    for device in range(len(offsets) - 1):
        home[offsets[device] : offsets[device + 1]] = device
    place = np.full((2, stages, len(route)), _NONE)  # of the results of F, and of B or BW
    unused, count, places = np.empty(size, np.int64), 0, 0
    for i in sequence:
        kind, stage, rows = operations[i, 0], operations[i, 1], 1
        ticks[i] = duration[kind, stage]
        if joined[i]:
            rows = 2
            other, its_stage = operations[i + 1, 0], operations[i + 1, 1]
            ticks[i] = paired_time(duration, overlapped[home[i]], kind, stage, other, its_stage)
        for j in range(i, i + rows):
            kind, stage, m = operations[j, 0], operations[j, 1], operations[j, 2]
            if kind == _W or (kind == _F and stage == 0):
                continue  # the B of a W runs before it on the same device
            if kind == _F or stage == stages - 1:
                taken[j] = place[0, stage - (kind == _F), m]
            else:
                taken[j] = place[1, stage + 1, m]
            lag[j] = lags[kind, route[m], stage]
            unused[count] = taken[j]
            count += 1
        for j in range(i, i + rows):
            kind, stage, m = operations[j, 0], operations[j, 1], operations[j, 2]
            if kind == _W or (kind != _F and stage == 0):
                continue
            if count > 0:
                count -= 1
                given[j] = unused[count]
            else:
                given[j] = places
                places += 1
            place[min(kind, 1), stage, m] = given[j]
            receiver[j] = peers[kind, route[m], stage]
    return Traffic(home, ticks, taken, lag, given, receiver, places)


@compiled_with_arrays
def paths_from(
    source: int,
    sources: int,
    offsets: Ints,
    joined: Ints,
    occupancy: int,
    sequence: Ints,
    traffic: Traffic,
) -> tuple[Ints, Ints]:
    """Return the longest paths, in ticks, from the first starts of some devices to all firsts and lasts.

    The sources are the devices from `source` on, `sources` in number. A path goes from the start of the first
    operation of its source along operations that have to follow one another, with their durations and their
    communication.

    Parameters
    ----------
    source, sources
        The first source, and the number of sources.
    offsets, joined, occupancy
        As in `earliest_times`.
    sequence
        As in `traffic_of`.
    traffic
        What the operations wait for and send.

    Returns
    -------
    to_first, to_last
        Ticks to the start of the first operation and to the end of the last operation of each device, each of
        shape (sources, devices); a negative number where there is no path.
    """
    devices = len(offsets) - 1
    sent = np.full((traffic.places, sources), NO_PATH)
    free = np.full((devices, sources), NO_PATH)
    links = np.full((devices, devices, sources), NO_PATH) if occupancy > 0 else np.full((1, 1, 1), NO_PATH)
    to_first, to_last = np.full((sources, devices), NO_PATH), np.full((sources, devices), NO_PATH)
    for i in sequence:
        device = traffic.home[i]
        now, is_first = free[device], i == offsets[device]
        if is_first and source <= device < source + sources:
            now[device - source] = 0
        for j in range(i, i + 1 + joined[i]):
            if traffic.taken[j] >= 0:
                message, lag = sent[traffic.taken[j]], traffic.lag[j]
                for k in range(sources):
                    now[k] = max(now[k], message[k] + lag)
        if is_first:
            for k in range(sources):
                to_first[k, device] = now[k]
        ticks = traffic.ticks[i]
        for k in range(sources):
            now[k] += ticks
        for j in range(i, i + 1 + joined[i]):
            if traffic.given[j] >= 0:
                message = sent[traffic.given[j]]
                for k in range(sources):
                    message[k] = now[k]
                if occupancy > 0 and traffic.receiver[j] >= 0:
                    link = links[device, traffic.receiver[j]]
                    for k in range(sources):
                        link[k] = message[k] = max(message[k], link[k] + occupancy)
    for device in range(devices):
        for k in range(sources):
            to_last[k, device] = free[device, k]
    return to_first, to_last
