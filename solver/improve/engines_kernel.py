"""When the items of a word with copies may start: on which engine, and in which memory; compiled.

A device computes, copies out and copies back at the same time, with an engine for each; where copies do not
overlap, one engine makes both kinds. The items of an engine run one after another as they stand in the word
of the device. What a device holds while an item runs follows from the word alone, as it does without copies.
So an item that takes memory, an F or an L, starts no earlier than the ends of all items before it in the word
that free memory. An item that frees memory does not wait for memory.

No schedule is lost, as `tightpipe.model.row_graph_kernel` shows: a word in the sequence of the times at which
memory is taken or freed keeps these rules. (Both of a pair stand where its F takes memory, so that a copy
back which could start while a pair runs may wait.)
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled, compiled_inline
from tightpipe.model.operation import PAIRED

from .words import EventGraph, Words

_COMPUTE, _OUT, _BACK, _FREED = range(4)  # the columns of `Words.engines`
_EARLY = -(2**60)  # earlier than all ticks, which are less than 0 in mirrored words that begin late
ALL = (1 << _FREED + 2) - 1  # what items may leave to others behind them (`set_by`)


@compiled_inline
def open_word(graph: EventGraph, words: Words, device: int) -> None:
    """Set where a device's word begins: behind the copies that are left out, with an item that computes."""
    i = graph.offsets[device]
    while words.item[i] >= graph.trips.first:
        i += 1
    words.opens[device] = i


@compiled_inline
def forget_engines(words: Words, device: int) -> None:
    """Note that the engines of a device have to be set before its next item is computed."""
    words.engines[device, _COMPUTE] = _EARLY


@compiled_inline
def forgotten(words: Words, device: int) -> bool:
    """Return whether the engines of a device have to be set."""
    return bool(words.engines[device, _COMPUTE] == _EARLY)


@compiled_inline
def all_ended(words: Words, device: int) -> int:
    """Return when all items of a device have ended up to the one that `busy_until` has noted last."""
    ended = words.engines[device, _COMPUTE]
    for engine in (_OUT, _BACK):
        ended = max(ended, words.engines[device, engine])
    return int(ended)


@compiled_inline
def resume_engines(graph: EventGraph, words: Words, device: int, i: int) -> None:
    """Set the engines of a device as the items before position `i` leave them."""
    engines, found = words.engines, 0
    for engine in range(engines.shape[1]):
        engines[device, engine] = words.begin[device]
    for k in range(i - 1, words.opens[device] - 1, -1):
        x = words.item[k]
        new, engine = set_by(graph, x) & ~found, _engine(graph, x)
        if new & 1 << engine:
            engines[device, engine] = words.end[x]
        if new >> _FREED:
            engines[device, _FREED] = max(engines[device, _FREED], words.end[x])
        found |= new
        if found == ALL or (found == ALL - (1 << _BACK) and not graph.trips.duplex):
            break


@compiled_inline
def set_by(graph: EventGraph, item: int) -> int:
    """Return what an item leaves to those behind it as bits: its engine and, if it frees memory, when.

    What computes frees memory apart from the O's, because of each kind the last one ends last.
    """
    engine = _engine(graph, item)
    bits = 1 << engine
    if _frees(graph, item):
        bits |= 1 << (_FREED if engine == _COMPUTE else _FREED + 1)
    return bits


@compiled_inline
def read_by(graph: EventGraph, item: int) -> int:
    """Return which of these bits the start of an item follows from."""
    queue = graph.arrays.queues[graph.arrays.queue[item]]
    bits = 1 << _engine(graph, item)
    if queue.delta > 0 or queue.passing > 0:
        bits |= 3 << _FREED
    return bits


@compiled_inline
def next_of_trip(graph: EventGraph, words: Words, device: int, item: int) -> int:
    """Return the item that waits for this one because of a trip that is made, -1 if there is none."""
    trips = graph.trips
    trip = trips.of[item]
    if trip < 0 or item == trips.backward[trip] or not is_made(graph, words, device, trip):
        return -1
    if item == trips.forward[trip]:
        return int(trips.out + trip)
    return int(trips.back + trip if item == trips.out + trip else trips.backward[trip])


@compiled_inline
def is_made(graph: EventGraph, words: Words, device: int, trip: int) -> bool:
    """Return whether the schedule makes a trip of this device."""
    return bool(words.opens[device] <= words.place[graph.trips.out + trip] < words.closes[device])


@compiled_inline
def free_from(graph: EventGraph, words: Words, device: int, i: int) -> int:
    """Return the tick from which engine, copies and memory let the item at position `i` start."""
    x, trips = words.item[i], graph.trips
    queue, trip = graph.arrays.queues[graph.arrays.queue[x]], trips.of[x]
    start = words.engines[device, _engine(graph, x)]
    if queue.delta > 0 or queue.passing > 0:
        start = max(start, words.engines[device, _FREED])
    if trip >= 0:
        if x == trips.out + trip:
            start = max(start, words.end[trips.forward[trip]])
        elif x == trips.back + trip:
            start = max(start, words.end[trips.out + trip])
        elif x == trips.backward[trip]:
            start = max(start, _returned(graph, words, device, trip))
    if graph.joint and words.joined[i] == PAIRED:
        start = max(start, _returned(graph, words, device, trips.of[words.item[i + 1]]))
    return int(start)


@compiled_inline
def busy_until(graph: EventGraph, words: Words, device: int, i: int) -> None:
    """Note the end of the item at position `i`, which occupies its engine until then."""
    x, engines = words.item[i], words.engines
    engines[device, _engine(graph, x)] = words.end[x]
    if _frees(graph, x):
        engines[device, _FREED] = max(engines[device, _FREED], words.end[x])


@compiled_inline
def _frees(graph: EventGraph, item: int) -> bool:
    queue = graph.arrays.queues[graph.arrays.queue[item]]
    return bool(queue.delta < 0 or queue.passing > 0)


@compiled_inline
def _engine(graph: EventGraph, item: int) -> int:
    """Return the column of the engine that runs an item."""
    if item < graph.trips.first:
        return _COMPUTE
    return _BACK if graph.trips.duplex and item >= graph.trips.first + graph.trips.size else _OUT


@compiled_inline
def _returned(graph: EventGraph, words: Words, device: int, trip: int) -> int:
    """Return when the L of a trip ends, and an early tick if there is no such trip in the schedule."""
    made = trip >= 0 and is_made(graph, words, device, trip)
    return int(words.end[graph.trips.back + trip]) if made else _EARLY


@compiled
def in_sequence(graph: EventGraph, words: Words, device: int, low: int, high: int) -> bool:
    """Return whether F, O, L and what waits for it stand in this sequence, for all trips that are made.

    Only trips are looked at of which something stands at positions `low` to `high`.
    """
    trips, place = graph.trips, words.place
    for i in range(low, high + 1):
        trip = trips.of[words.item[i]]
        if trip < 0:
            continue
        out, back = place[trips.out + trip], place[trips.back + trip]
        if out < words.opens[device]:
            continue
        if not place[trips.forward[trip]] < out < back < place[trips.backward[trip]]:
            return False
    return True
