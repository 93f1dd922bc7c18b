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
from .graph_arrays import GraphArrays
from .simulate_kernel import Run

NO_PATH = -(2**60)
_NONE = -1


class Traffic(NamedTuple):
    """The message that each of the M operations of an order waits for and sends.

    An operation that waits for another one of its device needs no message, because it follows that operation
    on the device.
    """

    home: Ints  # (M,) device
    taken: Ints  # (M,) place of the message that the operation waits for, -1 for none
    lag: Ints  # (M,) communication time of that message in ticks
    given: Ints  # (M,) place of the message that another operation waits for, -1 for none
    places: int


@compiled_with_arrays
def traffic_of(graph: GraphArrays, offsets: Ints, joined: Ints, run: Run, sequence: Ints) -> Traffic:
    """Return the messages of an order.

    Parameters
    ----------
    graph
        The graph of the instance.
    offsets, joined
        As in `Order`.
    run
        The run of the order.
    sequence
        The first row of each slot, in a sequence in which each slot comes after those that it waits for.
    """
    size = len(run.item)
    home, lag = np.empty(size, np.int64), np.zeros(size, np.int64)
    taken, given = np.full(size, _NONE), np.full(size, _NONE)
    for device in range(len(offsets) - 1):
        home[offsets[device] : offsets[device + 1]] = device
    place = np.full(len(graph.items), _NONE)  # of the message of each item
    unused, count, places = np.empty(size, np.int64), 0, 0
    for i in sequence:
        for j in range(i, i + 1 + joined[i]):
            node = graph.nodes[run.node[j]]
            for e in range(node.begin, node.end):
                edge = graph.edges[e]
                if edge.message:
                    taken[j] = place[run.item[j] + edge.shift]
                    lag[j] = edge.lag
                    unused[count] = taken[j]
                    count += 1
        for j in range(i, i + 1 + joined[i]):
            if graph.nodes[run.node[j]].receiver < 0:
                continue
            if count > 0:
                count -= 1
                given[j] = unused[count]
            else:
                given[j] = places
                places += 1
            place[run.item[j]] = given[j]
    return Traffic(home, taken, lag, given, places)


@compiled_with_arrays
def paths_from(
    source: int,
    sources: int,
    graph: GraphArrays,
    offsets: Ints,
    joined: Ints,
    run: Run,
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
    graph, offsets, joined, run, sequence
        As in `traffic_of`.
    traffic
        The messages that the operations wait for and send.

    Returns
    -------
    to_first, to_last
        Ticks to the start of the first operation and to the end of the last operation of each device, each of
        shape (sources, devices); a negative number where there is no path.
    """
    devices, occupancy = len(offsets) - 1, graph.occupancy
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
        ticks = run.ticks[i]
        for k in range(sources):
            now[k] += ticks
        for j in range(i, i + 1 + joined[i]):
            if traffic.given[j] >= 0:
                message = sent[traffic.given[j]]
                for k in range(sources):
                    message[k] = now[k]
                if occupancy > 0:
                    link = links[device, graph.nodes[run.node[j]].receiver]
                    for k in range(sources):
                        link[k] = message[k] = max(message[k], link[k] + occupancy)
    for device in range(devices):
        for k in range(sources):
            to_last[k, device] = free[device, k]
    return to_first, to_last
