"""The compiled loops for orders with copies: earliest start times, and longest paths between devices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..kernels.arrays import Bools, Ints
from ..kernels.compiled import compiled, compiled_inline, compiled_with_arrays
from .simulate_kernel import ABSENT, NO_PATH


class RowGraph(NamedTuple):
    """The M rows of an order, with K pairs of rows of which one waits for the other, and p devices.

    What the second row of a pair of operations waits for stands with the first row.
    """

    begin: Ints  # (M + 1,) row i waits for the rows before[begin[i]] to before[begin[i + 1] - 1]
    before: Ints  # (K,) M where no device runs what is waited for
    lag: Ints  # (K,) ticks from the end of the other row, or from when its message leaves
    message: Bools  # (K,) whether the row waits for the other one's message
    follow: Ints  # (K,) first rows of slots that wait, sorted by the row that they wait for
    leads: Ints  # (M + 1,) the rows follow[leads[i]] to follow[leads[i + 1] - 1] wait for row i
    head: Ints  # (M,) first row of the slot
    joined: Ints  # (M,) as in `Order`
    home: Ints  # (M,) device
    ticks: Ints  # (M,) of both operations of a pair, those of the pair
    ready: Ints  # (M,) tick before which it does not start
    link: Ints  # (M,) row whose message leaves over the same link before that of this row; -1 for none
    occupancy: int  # least ticks from one message on a link to the next
    first: Ints  # (p,) first row that computes
    last: Ints  # (p,) last row that computes


class RowTimes(NamedTuple):
    """The times of the M rows of an order, in ticks."""

    start: Ints  # (M,) start, or `ABSENT`
    end: Ints  # (M,) end, or `ABSENT`
    sent: Ints  # (M,) when the message of the row leaves
    missing: Ints  # (M,) how many of the rows that a row waits for have not run
    sequence: Ints  # (M,) the first row of each slot that has run; each slot after those it waits for


@compiled_inline
def _sent(graph: RowGraph, row: int, end: int, sent: Ints) -> int:
    """Return when the message of a row leaves, in ticks: at its `end`, or later if its link is busy."""
    before = graph.link[row]
    return int(max(end, sent[before] + graph.occupancy)) if before >= 0 and graph.occupancy > 0 else end


@compiled
def earliest_row_times(graph: RowGraph, release: Ints, times: RowTimes) -> tuple[int, int]:
    """Compute the earliest start and end of each row; return the numbers of rows and of slots that can run.

    - `graph`: the graph of the rows.
    - `release`: earliest start of each device in ticks, shape (p,).
    - `times`: receives the times; those of an earlier call do not matter.
    """
    slots, done, found = 0, 0, 0
    for i in range(len(graph.ticks)):
        times.start[i] = times.end[i] = ABSENT
        times.missing[i] = graph.begin[i + 1] - graph.begin[i]
        if graph.head[i] == i and times.missing[i] == 0:
            times.sequence[found] = i
            found += 1
    while slots < found:
        i = times.sequence[slots]
        slots += 1
        begin = max(graph.ready[i], release[graph.home[i]])
        for e in range(graph.begin[i], graph.begin[i + 1]):
            before = graph.before[e]
            left = times.sent[before] if graph.message[e] else times.end[before]
            begin = max(begin, left + graph.lag[e])
        for j in range(i, i + 1 + graph.joined[i]):
            begin = max(begin, graph.ready[j])
        for j in range(i, i + 1 + graph.joined[i]):
            done += 1
            times.start[j], times.end[j] = begin, begin + graph.ticks[i]
            times.sent[j] = _sent(graph, j, times.end[j], times.sent)
            for k in range(graph.leads[j], graph.leads[j + 1]):
                after = graph.follow[k]
                times.missing[after] -= 1
                if times.missing[after] == 0:
                    times.sequence[found] = after
                    found += 1
    return done, slots


@compiled_with_arrays
def row_paths_from(source: int, graph: RowGraph, sequence: Ints) -> tuple[Ints, Ints]:
    """Return the longest paths, in ticks, from the first start of a device to all firsts and lasts.

    The results are ticks to the start of the first and to the end of the last operation that each device
    computes, each of shape (devices,); a negative number where there is no path.

    - `source`: the device.
    - `graph`: the graph of the rows.
    - `sequence`: the slots in a sequence in which each comes after those that it waits for.
    """
    devices, size = len(graph.first), len(graph.ticks)
    start, end, sent = np.full(size, NO_PATH), np.full(size, NO_PATH), np.full(size, NO_PATH)
    for i in sequence:
        begin = 0 if i == graph.first[source] else NO_PATH
        for e in range(graph.begin[i], graph.begin[i + 1]):
            before = graph.before[e]
            left = sent[before] if graph.message[e] else end[before]
            begin = max(begin, left + graph.lag[e])
        for j in range(i, i + 1 + graph.joined[i]):
            start[j], end[j] = begin, begin + graph.ticks[i]
            sent[j] = _sent(graph, j, end[j], sent)
    to_first, to_last = np.empty(devices, np.int64), np.empty(devices, np.int64)
    for device in range(devices):
        to_first[device], to_last[device] = start[graph.first[device]], end[graph.last[device]]
    return to_first, to_last
