"""The compiled simulator of noise: an order runs in all samples of a block at once, each with its own times.

Times are in ticks and need not be whole. In the inner loops, neighbouring numbers belong to neighbouring
samples, so that the processor works on several samples at a time. The sequence in which operations are
simulated does not depend on the samples: the devices are visited one after another, again and again, and each
runs its operations until it comes to one that needs the result of an operation that has not run.
"""

from __future__ import annotations

from typing import NamedTuple

from ..kernels.arrays import Bools, Floats, Ints
from ..kernels.compiled import compiled, compiled_inline
from .order_graph import OrderGraph

_NONE = -1


class SampleState(NamedTuple):
    """The times of an order in K samples, and scratch space.

    The order has N operations on p devices, and there are L links.
    """

    end: Floats  # (N + 1, K) end of each operation; row N is 0
    sent: Floats  # (N + 1, K) when each result leaves its device; `end` itself where no message ever waits
    free: Floats  # (p, K) end of the last operation of each device
    first: Floats  # (p, K) start of the first operation of each device
    ran: Bools  # (N + 1,) whether an operation has run; true for row N
    head: Ints  # (p,) next row of each device
    sent_before: Ints  # (N,) the row whose message precedes each row's message on its link, -1 for none
    last: Ints  # (L,) the row whose message left last on each link


@compiled
def run_samples(
    graph: OrderGraph,
    durations: Floats,
    lags: Floats,
    moment: Floats,
    stall: Floats,
    release: Ints,
    state: SampleState,
) -> int:
    """Compute when every operation ends in each of K samples.

    Return the number of operations that ran: less than N if operations wait for each other.

    - `graph`: the graph of the order.
    - `durations`, `lags`: the flattened durations and lags of `Times`, each with a further row of zeros.
    - `moment`, `stall`: tick at which each device's stall begins, and ticks that it lasts, 0 for no stall;
      shape (p, K).
    - `release`: the tick before which each device does not begin, shape (p,).
    - `state`: receives the times.
    """
    devices = len(state.free)
    _open(graph, release, state)
    done, before, stalls = 0, -1, _longest(stall) > 0.0
    while done > before:
        before = done
        for device in range(devices):
            while state.head[device] < graph.offsets[device + 1]:
                row = state.head[device]
                count = 1 + graph.joined[row]
                if not state.ran[graph.source[row]] or not state.ran[graph.source[row + count - 1]]:
                    break
                _start(graph, device, row, count, lags, state)
                _run(graph, device, row, count, durations, moment, stall, stalls, state)
                for k in range(row, row + count):
                    _send(graph, k, state)
                state.head[device] += count
                done += count
    return done


@compiled
def _longest(stall: Floats) -> float:
    longest = 0.0
    for ticks in stall.flat:
        longest = max(longest, ticks)
    return longest


@compiled_inline
def _open(graph: OrderGraph, release: Ints, state: SampleState) -> None:
    devices, samples = state.free.shape
    state.ran[:] = False
    state.ran[len(state.sent_before)] = True
    state.last[:] = _NONE
    for device in range(devices):
        state.head[device] = graph.offsets[device]
        for k in range(samples):
            state.free[device, k] = release[device]


@compiled_inline
def _start(graph: OrderGraph, device: int, row: int, count: int, lags: Floats, state: SampleState) -> None:
    """Set `end` of a row to the tick from which its device is free and its inputs have arrived."""
    start, free = state.end[row], state.free[device]
    for k in range(len(start)):
        start[k] = free[k]
    for i in range(row, row + count):
        message = graph.message[i]
        times = state.sent if message < len(lags) - 1 else state.end
        left, lag = times[graph.source[i]], lags[message]
        for k in range(len(start)):
            start[k] = max(start[k], left[k] + lag[k], graph.ready[i])


@compiled_inline
def _run(
    graph: OrderGraph,
    device: int,
    row: int,
    count: int,
    durations: Floats,
    moment: Floats,
    stall: Floats,
    stalls: bool,
    state: SampleState,
) -> None:
    """Compute when the operation, or the pair, that begins at a row ends.

    Before the call, `state.end` holds its start in this row. After it, `state.end` holds the end in all of
    its `count` rows. The device is then free from that end on.
    """
    end, free, first = state.end[row], state.free[device], state.first[device]
    begins, none = row == graph.offsets[device], len(durations) - 1
    for k in range(len(end)):
        free[k] = end[k]
    for i in range(row, row + count):
        for part in graph.part[i]:
            if part < none:
                took = durations[part]
                for k in range(len(end)):
                    free[k] += graph.scale[row] * took[k]
    for k in range(len(end) if begins else 0):
        first[k] = end[k]
    if stalls:
        _stand(moment[device], stall[device], begins, end, free, first)
    for i in range(row, row + count):
        ends = state.end[i]
        for k in range(len(ends)):
            ends[k] = free[k]


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
def _send(graph: OrderGraph, row: int, state: SampleState) -> None:
    """Compute when the result of a row leaves: at the row's end, or later if its link is still busy.

    The row then counts as run.
    """
    state.ran[row] = True
    link = graph.link[row]
    state.sent_before[row] = _NONE
    if link >= 0:
        state.sent_before[row], state.last[link] = state.last[link], row
    before = state.sent_before[row]
    if graph.occupancy > 0:
        for k in range(state.end.shape[1]):
            state.sent[row, k] = state.end[row, k]
            if before >= 0 and state.sent[before, k] + graph.occupancy > state.end[row, k]:
                state.sent[row, k] = state.sent[before, k] + graph.occupancy


class Criticality(NamedTuple):
    """How often, and with what delay, the critical paths of some samples pass each operation and message.

    N is the number of operations.
    """

    operations: Floats  # (N,) number of samples in which the critical path goes through each operation
    delays: Floats  # (N,) sum over these samples of (end - possible start - planned ticks)
    messages: (
        Floats  # (N,) number of samples in which the critical path goes through the message to each operation
    )
    message_delays: Floats  # (N,) sum over these samples of (ticks - planned ticks) of that message


@compiled
def trace_critical(
    graph: OrderGraph,
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
            row = _trace(graph, lags, release, sample, state, found, row)


@compiled_inline
def _trace(
    graph: OrderGraph,
    lags: Floats,
    release: Ints,
    sample: int,
    state: SampleState,
    found: Criticality,
    row: int,
) -> int:
    """Count a row's operation or pair on the critical path, and return the row before it, -1 for none."""
    if row > 0 and graph.joined[row - 1]:
        row -= 1
    device, held = graph.home[row], _NONE
    before = _NONE if row == graph.offsets[device] else row - 1
    ready = state.end[before, sample] if before >= 0 else float(release[device])
    for i in range(row, row + 1 + graph.joined[row]):
        found.operations[i] += 1.0
        times = state.sent if graph.message[i] < len(lags) - 1 else state.end
        arrived = times[graph.source[i], sample] + lags[graph.message[i], sample]
        if arrived > ready:
            ready, held = arrived, i
        if graph.ready[i] > ready:
            ready, before, held = graph.ready[i], _NONE, _NONE
    found.delays[row] += state.end[row, sample] - ready - graph.planned[row]
    return int(before) if held < 0 else _trace_input(graph, lags, sample, state, found, held)


@compiled_inline
def _trace_input(
    graph: OrderGraph, lags: Floats, sample: int, state: SampleState, found: Criticality, row: int
) -> int:
    """Count the message for which a row waited, if there was one, and return the row before it on the path.

    The row returned is that of the operation which sent the message. If the message had to wait for its link,
    it is instead the row that sent the last earlier message of the link that did not have to wait.
    """
    source, message = graph.source[row], graph.message[row]
    if message < len(lags) - 1:
        found.messages[row] += 1.0
        found.message_delays[row] += lags[message, sample] - graph.lag[row]
        while state.sent[source, sample] > state.end[source, sample]:
            source = state.sent_before[source]
    return int(source)
