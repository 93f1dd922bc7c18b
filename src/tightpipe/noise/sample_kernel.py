"""The compiled simulator of noise: an order runs in all samples of a block at once, each with its own times.

Times are in ticks and need not be whole. In the inner loops, neighbouring numbers belong to neighbouring
samples, so that the processor works on several samples at a time. In all samples the slots run in the same
sequence, in which each comes after those that it waits for.
"""

from __future__ import annotations

from typing import NamedTuple

from ..kernels.arrays import Floats, Ints
from ..kernels.compiled import compiled, compiled_inline
from ..model.row_graph_kernel import RowGraph

_NONE = -1


class Draws(NamedTuple):
    """Which of the random times in a block the N rows of an order take, and the K waits of its `RowGraph`.

    The rows of durations and of lags are those of `Times`, made flat by `flat`: one for each operation or
    message, one of ones, of which a copy takes as many as it has ticks, and a last row of zeros.
    """

    part: Ints  # (N, 2) rows of the durations whose sum the operation takes
    scale: Floats  # (N,) what the sum is multiplied with; less than 1 for a pair that saves time
    lag: Ints  # (K,) row of the lags of the message that is waited for
    sequence: Ints  # first row of each slot; each slot after those it waits for


class SampleState(NamedTuple):
    """The times of an order of N rows on p devices in K samples."""

    end: Floats  # (N, K) end of each operation
    sent: Floats  # (N, K) when each result leaves its device; `end` itself where no message ever waits
    first: Floats  # (p, K) start of the first operation of each device
    until: Floats  # (K,) scratch space: when the operation that is looked at ends


@compiled
def run_samples(
    graph: RowGraph,
    draws: Draws,
    durations: Floats,
    lags: Floats,
    moment: Floats,
    stall: Floats,
    release: Ints,
    state: SampleState,
) -> None:
    """Compute when every operation ends in each of K samples, and write the times to `state`.

    `moment` and `stall` have the tick at which each device's stall begins, and its ticks, 0 for no stall,
    shape (p, K); `release` the tick before which each device does not begin, shape (p,).
    """
    stalls = _longest(stall) > 0.0
    for row in draws.sequence:
        device = graph.home[row]
        _start(graph, draws, row, release[device], lags, state)
        _run(graph, draws, row, durations, state)
        start, begins = state.end[row], row == graph.first[device]
        for k in range(len(start) if begins else 0):
            state.first[device, k] = start[k]
        if stalls:
            _stand(moment[device], stall[device], begins, start, state.until, state.first[device])
        for i in range(row, row + 1 + graph.joined[row]):
            _end(graph, i, state)


@compiled
def _longest(stall: Floats) -> float:
    longest = 0.0
    for ticks in stall.flat:
        longest = max(longest, ticks)
    return longest


@compiled_inline
def _ready(graph: RowGraph, row: int, release: int) -> float:
    """Return the tick before which the slot that begins at a row does not start, whatever it waits for."""
    return float(max(release, graph.ready[row], graph.ready[row + graph.joined[row]]))


@compiled_inline
def _start(graph: RowGraph, draws: Draws, row: int, release: int, lags: Floats, state: SampleState) -> None:
    """Set `end` of a row to the tick from which its device is free and its inputs have arrived."""
    start, ready = state.end[row], _ready(graph, row, release)
    for k in range(len(start)):
        start[k] = ready
    for e in range(graph.begin[row], graph.begin[row + 1]):
        times = state.sent if graph.message[e] else state.end
        left, lag = times[graph.before[e]], lags[draws.lag[e]]
        for k in range(len(start)):
            start[k] = max(start[k], left[k] + lag[k])


@compiled_inline
def _run(graph: RowGraph, draws: Draws, row: int, durations: Floats, state: SampleState) -> None:
    """Set `until` to when the operation or the pair ends that begins at a row, whose start is in `end`."""
    start, until, none = state.end[row], state.until, len(durations) - 1
    for k in range(len(until)):
        until[k] = start[k]
    for i in range(row, row + 1 + graph.joined[row]):
        for part in draws.part[i]:
            if part < none:
                took = durations[part]
                for k in range(len(until)):
                    until[k] += draws.scale[row] * took[k]


@compiled_inline
def _stand(moment: Floats, stall: Floats, begins: bool, start: Floats, end: Floats, first: Floats) -> None:
    """Delay the end of an operation that runs when its device's stall begins, or would start during it."""
    for k in range(len(start)):
        goes_on = moment[k] + stall[k]
        if moment[k] <= start[k] < goes_on:
            end[k] += goes_on - start[k]
            if begins:
                first[k] = goes_on
        elif start[k] < moment[k] < end[k]:
            end[k] += stall[k]


@compiled_inline
def _end(graph: RowGraph, row: int, state: SampleState) -> None:
    """Set when a row ends, and when its result leaves: then, or later if its link is still busy."""
    before = graph.link[row]
    for k in range(len(state.until)):
        state.end[row, k] = state.until[k]
        if graph.occupancy > 0:
            state.sent[row, k] = state.until[k]
            if before >= 0:
                state.sent[row, k] = max(state.until[k], state.sent[before, k] + graph.occupancy)


class Criticality(NamedTuple):
    """How often, and with what delay, the critical paths of some samples pass each of N operations."""

    operations: Floats  # (N,) number of samples in which the critical path goes through each operation
    delays: Floats  # (N,) sum over these samples of (end - possible start - planned ticks)
    messages: Floats  # (N,) number of samples in which it goes through the message to each operation
    message_delays: Floats  # (N,) sum over these samples of (ticks - planned ticks) of that message


@compiled
def trace_critical(
    graph: RowGraph,
    draws: Draws,
    lags: Floats,
    release: Ints,
    last: Ints,
    state: SampleState,
    found: Criticality,
) -> None:
    """Follow the critical path of each sample that `last` has, and add what it passes to `found`.

    The path of a sample ends with the row in `last`. Backwards, it goes from each operation to what held it
    longest: the operation before it on its device, or its input. It begins at an operation that waited for
    nothing but the `release` of its device, the tick before which the device does not begin, or for the
    parameters of its stage.
    """
    for sample in range(len(last)):
        row = int(last[sample])
        while row >= 0:
            held = _trace(graph, draws, lags, release, sample, state, found, graph.head[row])
            row = _NONE if held < 0 else _trace_input(graph, draws, lags, sample, state, found, held)


@compiled_inline
def _trace(
    graph: RowGraph,
    draws: Draws,
    lags: Floats,
    release: Ints,
    sample: int,
    state: SampleState,
    found: Criticality,
    row: int,
) -> int:
    """Count the operation or pair that begins at a row, and return the wait that held it; -1 for none.

    Where its device and a message hold it equally long, that is the wait for its device.
    """
    held, ready = _NONE, float(release[graph.home[row]])
    for e in range(graph.begin[row], graph.begin[row + 1]):
        times = state.sent if graph.message[e] else state.end
        arrived = times[graph.before[e], sample] + lags[draws.lag[e], sample]
        if arrived > ready or (arrived == ready and not graph.message[e]):
            ready, held = arrived, e
    begins = _ready(graph, row, release[graph.home[row]])
    if begins > ready:
        ready, held = begins, _NONE
    for i in range(row, row + 1 + graph.joined[row]):
        found.operations[i] += 1.0
    found.delays[row] += state.end[row, sample] - ready - graph.ticks[row]
    return held


@compiled_inline
def _trace_input(
    graph: RowGraph,
    draws: Draws,
    lags: Floats,
    sample: int,
    state: SampleState,
    found: Criticality,
    held: int,
) -> int:
    """Count the message that is waited for, if it is one, and return the row before the wait on the path.

    The row returned is that of the operation which is waited for. If its message had to wait for its link, it
    is instead the row that sent the last earlier message of the link that did not have to wait.
    """
    before = graph.before[held]
    if graph.message[held]:
        found.messages[graph.after[held]] += 1.0
        found.message_delays[graph.after[held]] += lags[draws.lag[held], sample] - graph.lag[held]
        while state.sent[before, sample] > state.end[before, sample]:
            before = graph.link[before]
    return int(before)
