"""The compiled loops of the simulator: earliest start times, and the longest paths between devices.

From the longest paths between devices follows when each device can best begin. All paths that end at an
operation are found together, in one pass over the operations in the sequence of their starts. A message has a
*place*, which a later message takes over after it has arrived. Few messages are under way at a time, so all
places stay in the processor's cache, however many operations there are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.errors import InputError
from ..kernels.arrays import Bools, Ints
from ..kernels.compiled import compiled, compiled_inline, compiled_with_arrays
from .graph_arrays import GraphArrays
from .operation import COMPUTES, operation_text
from .schedule import Order

_F, _B, _W, _BW = (int(kind) for kind in COMPUTES)
ABSENT = -1
"""Start and end of an operation that cannot run, as in a deadlock."""


class Run(NamedTuple):
    """An order as items, and the times that a run of the simulator finds.

    The order has M operations, the graph N items and p devices. Times are in ticks. Numbers of nodes and of
    items have 32 bits, because much of the time of a run goes into memory that it touches for the first time.
    """

    node: NDArray[np.int32]  # (M,) node of each operation: of a BW, the node of its B
    item: NDArray[np.int32]  # (M,) item of each operation
    ticks: Ints  # (M,) ticks that it takes: of both operations of a pair, those of the pair
    start: Ints  # (M,) start, or `ABSENT`
    end: Ints  # (M,) end, or `ABSENT`
    ended: Ints  # (N,) end of each item, or `ABSENT`
    sent: Ints  # (N,) when the item's message leaves, or `ABSENT`; `ended` itself where no link is ever busy
    last: Ints  # (p, p) when the last message left, for each link
    head: Ints  # (p,) next operation of each device
    free: Ints  # (p,) when each device is free
    waiting: Ints  # (p,) a ring of devices that may be able to go on
    listed: Bools  # (p,) whether each device is in the ring
    sequence: Ints  # (M,) the first operation of each slot that has run; each slot after those it waits for


def new_run(graph: GraphArrays, order: Order) -> Run:
    """Return a run before its begin; raise an InputError if an operation is unknown or comes twice."""
    size, items, p = len(order), len(graph.items), len(graph.devices)

    def ints(*shape: int) -> Ints:
        return np.empty(shape, np.int64)

    ended = ints(items)
    run = Run(
        node=np.empty(size, np.int32),
        item=np.empty(size, np.int32),
        ticks=ints(size),
        start=ints(size),
        end=ints(size),
        ended=ended,
        sent=ints(items) if graph.occupancy else ended,
        last=ints(p, p if graph.occupancy else 1),
        head=ints(p),
        free=ints(p),
        waiting=ints(p),
        listed=np.empty(p, np.bool_),
        sequence=ints(size),
    )
    wrong = _name_items(graph, order.operations, run)
    if wrong >= 0:
        row = order.operations[wrong]
        if run.item[wrong] == ABSENT:
            raise InputError("the instance has no such operation", value=row.tolist())
        kind, stage, unit = row.tolist()
        text = operation_text(kind, stage, unit, graph.slices)
        raise InputError("the order has this operation twice", value=text)
    if order.pairs.any():
        _set_pairs(graph, order.operations, order.offsets, order.pairs, run)
    return run


@compiled
def _name_items(graph: GraphArrays, operations: Ints, run: Run) -> int:
    """Set the items of a run, and the ticks that its operations take.

    Return -1, or the first row whose operation the graph does not have or the order has twice. In the first
    case the item of this row is `ABSENT`.
    """
    seen = run.ended  # 1 once a row has named the item itself, 2 once a BW has, 3 once both have
    seen[:] = 0
    stages = graph.node.shape[2]
    for i in range(len(operations)):
        kind, stage, m = operations[i, 0], operations[i, 1], operations[i, 2]
        run.item[i] = ABSENT
        known = _F <= kind <= _BW and 0 <= stage < stages and 0 <= m < len(graph.rank)
        run.node[i] = graph.node[_B if kind == _BW else kind, graph.mb_class[m], stage] if known else ABSENT
        if run.node[i] < 0:
            return i
        node = graph.nodes[run.node[i]]
        if kind == _BW and node.fused == 0:  # its stage has no W
            return i
        run.item[i] = node.first + graph.rank[m]
        run.ticks[i] = node.fused if kind == _BW else node.duration
        bit = 2 if kind == _BW else 1
        if seen[run.item[i]] & bit:
            return i
        seen[run.item[i]] |= bit
    return -1


@compiled
def _set_pairs(graph: GraphArrays, operations: Ints, offsets: Ints, joined: Ints, run: Run) -> None:
    """Set the ticks of the operations that run in pairs."""
    for device in range(len(offsets) - 1):
        for i in range(offsets[device], offsets[device + 1]):
            if joined[i]:
                ticks = run.ticks[i] + run.ticks[i + 1]
                if graph.devices[device].paired and operations[i + 1, 0] == _BW:
                    f, b = graph.nodes[run.node[i]], graph.nodes[run.node[i + 1]]
                    ticks = graph.together[device, graph.queues[f.queue].local, graph.queues[b.queue].local]
                run.ticks[i] = run.ticks[i + 1] = ticks


@compiled_inline
def _arrival(graph: GraphArrays, operation: int, run: Run) -> int:
    """Return the tick at which all that an operation waits for has arrived, -1 if some of it has not run."""
    node, item = graph.nodes[run.node[operation]], run.item[operation]
    arrival = node.ready
    for e in range(node.begin, node.end):
        edge = graph.edges[e]
        before = item + edge.shift
        left = run.sent[before] if edge.message else run.ended[before]
        if left < 0:
            return ABSENT
        arrival = max(arrival, left + edge.lag)
    return int(arrival)


@compiled_inline
def departure(end: int, receiver: int, last: Ints, occupancy: int) -> int:
    """Return when a message to `receiver` leaves, in ticks: at `end`, or later if the link is still busy.

    A link is busy for `occupancy` ticks after a message leaves. `last` holds when the last message to each
    receiver left, and is updated. A negative `receiver` means that there is no message.
    """
    if receiver < 0 or occupancy == 0:
        return end
    last[receiver] = max(end, last[receiver] + occupancy)
    return int(last[receiver])


@compiled
def earliest_times(
    graph: GraphArrays, offsets: Ints, joined: Ints, release: Ints, run: Run
) -> tuple[int, int]:
    """Compute the earliest start and end of each operation.

    A device runs its operations in sequence until the next one waits for an operation that has not run yet.
    The device goes on after another one has sent it a message. The loop ends when no device can go on.
    Operations that have not run by then never can, because of a deadlock or a missing operation; their start
    and end are `ABSENT`. Return the numbers of operations and of slots that can run; a slot has one
    operation, or the two of a pair. `release` has the earliest start of each device in ticks, shape (p,); the
    times go into `run`.
    """
    run.ended[:] = ABSENT
    if graph.occupancy:
        run.sent[:] = ABSENT
    run.last[:] = -graph.occupancy
    devices = len(release)
    for device in range(devices):
        run.head[device], run.free[device] = offsets[device], release[device]
    done, slots, before = 0, 0, -1
    while done > before:  # in an order whose operations are all on their devices, one round is enough
        before, first, count = done, 0, devices
        for device in range(devices):
            run.waiting[device], run.listed[device] = device, True
        while count > 0:
            device = run.waiting[first]
            first, count = (first + 1) % devices, count - 1
            run.listed[device] = False
            ran, further, count = _go_on(graph, offsets, joined, device, run, slots, first, count)
            done, slots = done + ran, slots + further
    for device in range(devices):
        for i in range(run.head[device], offsets[device + 1]):
            run.start[i] = run.end[i] = ABSENT
    return done, slots


@compiled_inline
def _go_on(
    graph: GraphArrays, offsets: Ints, joined: Ints, device: int, run: Run, slots: int, first: int, count: int
) -> tuple[int, int, int]:
    """Run the operations of a device until one waits.

    `slots` slots have run before, and the ring of waiting devices begins at `first` with `count` devices.
    Return the numbers of operations and of slots that have run, and of devices in the ring.
    """
    i, free, further = run.head[device], run.free[device], 0
    while i < offsets[device + 1]:
        rows = 1 + joined[i]
        ready = _arrival(graph, i, run)
        if ready < 0:
            break
        begin = max(free, ready)
        if joined[i]:
            ready = _arrival(graph, i + 1, run)
            if ready < 0:
                break
            begin = max(begin, ready)
        free = begin + run.ticks[i]
        for j in range(i, i + rows):
            item = run.item[j]
            run.start[j], run.end[j], run.ended[item] = begin, free, free
            receiver = graph.nodes[run.node[j]].receiver
            run.sent[item] = departure(free, receiver, run.last[device], graph.occupancy)
            if receiver >= 0 and not run.listed[receiver]:
                run.waiting[(first + count) % len(run.free)] = receiver
                run.listed[receiver] = True
                count += 1
        run.sequence[slots + further] = i
        i, further = i + rows, further + 1
    ran = i - run.head[device]
    run.head[device], run.free[device] = i, free
    return int(ran), further, count


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

    `sequence` has the first row of each slot, such that each slot comes after those that it waits for.
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
    communication. The results are ticks to the start of the first and to the end of the last operation of
    each device, each of shape (sources, devices); a negative number where there is no path. `traffic` is that
    of `traffic_of`, as all other parameters.
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
