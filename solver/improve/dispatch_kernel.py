"""A dispatching rule: words from a few weights, whatever the number of devices and microbatches.

Whenever a device is free it runs the head of the queue with the largest score. A score is linear in
where the device stands: how far it has come in its word, its place among the devices, how full its
memory is, and how long the head keeps it waiting. One weight thus moves operations of many
microbatches on all devices at once, which no sequence of single moves does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled

from ..queues import Queues
from .network import Network

Weights = NDArray[np.float64]

# weights of a queue: in the first third of the word, fading; in the middle; in the last third, rising;
# these three times the device's place; memory; and, subtracted, per tick of waiting
FEATURES = 8
_FULL = 6
WAITING = 7
_NEVER = 2**62
_UNKNOWN = -1  # departure of a message whose item has not run


class Yard(NamedTuple):
    """Queues as arrays, and the state of a run; Q queues, N items, p devices, C kinds of credit."""

    first: Ints  # (Q,) item
    size: Ints  # (Q,) number of items
    offsets: Ints  # (p + 1,) device d has queues offsets[d] to offsets[d + 1] - 1
    reserve: Ints  # (Q,) memory that the queue leaves to others
    work: Ints  # (p,) ticks
    done: Ints  # (Q,) items that have run
    credit: Ints  # (C,)
    memory: Ints  # (p,)
    free: Ints  # (p,) when the last item ended
    idle: Ints  # (p,) ticks
    place: Ints  # (p,) next position
    wake: Ints  # (p,) when to look for an item
    sent: Ints  # (N,) when each item's message leaves, `_UNKNOWN` before it has run
    left: Ints  # (L,) when the last message of each link left
    item: Ints  # (N,) at each position: the result


def yard_for(queues: Queues, network: Network) -> Yard:
    """Return the arrays of an instance, and room for runs."""

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int64)

    p, items = queues.instance.devices, len(network.queue)
    count = np.array([queue.count for queue in queues.queues])
    home = np.array([queue.device for queue in queues.queues])
    work = np.array([queue.count * queue.duration for queue in queues.queues])
    return Yard(
        first=np.cumsum(count) - count,
        size=count,
        offsets=np.searchsorted(home, np.arange(p + 1)),
        reserve=_reserves(queues),
        work=np.bincount(home, work, p).astype(np.int64),
        done=ints(len(count)),
        credit=ints(network.credits),
        **{name: ints(p) for name in ("memory", "free", "idle", "place", "wake")},
        sent=ints(items),
        left=ints(network.links),
        item=ints(items),
    )


def _reserves(queues: Queues) -> Ints:
    """Return what an F leaves to its route's later F's on the device.

    An F that has come so far always finds room then: the oldest microbatch never waits for memory that
    younger ones hold.
    """
    reserve = np.zeros(len(queues.queues), np.int64)
    for q, queue in enumerate(queues.queues):
        if queue.kind is OpKind.F:
            ((route, stage),) = queue.members
            later = (queues.queues[r] for r in queues.on(queue.device) if queues.queues[r].kind is OpKind.F)
            reserve[q] = sum(f.delta for f in later if f.members[0][0] == route and f.members[0][1] > stage)
    return reserve


def first_weights(queues: Queues, unit: float) -> Weights:
    """Return the rule to start from: B before F, later stages first, W where nothing else is left.

    Parameters
    ----------
    queues
        The problem.
    unit
        Ticks of waiting that count as much as one step between queues.

    Returns
    -------
    Weights
        Of each queue of a device, in the sequence of its queues; shape (R, FEATURES).
    """
    widest = max((queues.on(d) for d in range(queues.instance.devices)), key=len)
    weights = np.zeros((len(widest), FEATURES))
    for role, q in enumerate(widest):
        kind = queues.queues[q].kind
        weights[role, :3] = 4.0 if kind is OpKind.B else 2.0 + role / 2 if kind is OpKind.F else 0.0
    weights[:, WAITING] = 1.0 / unit
    return weights


@compiled
def dispatch(network: Any, yard: Any, weights: Any, enough: float) -> float:
    """Run all items by a rule; their sequence is left in `yard.item`.

    Returns
    -------
    float
        The cost at these start times, an upper bound of that of the words. `np.inf` if it is above
        `enough` or the rule comes to a halt.
    """
    _open(network, yard)
    for _ in range(len(yard.item)):
        device, q, start = 0, -1, 0
        while q < 0:
            device = int(np.argmin(yard.wake))
            if yard.wake[device] == _NEVER:
                return np.inf
            q, start = _choose(network, yard, weights, device)
        if yard.place[device] > network.offsets[device] or network.frames == 1:
            yard.idle[device] += start - yard.free[device]
            if yard.work[device] + yard.idle[device] > enough:
                return np.inf
        _run(network, yard, device, q, start)
    largest = 0
    for device in range(len(yard.work)):
        largest = max(largest, yard.work[device] + yard.idle[device])
    return float(largest)


@compiled
def _open(network: Any, yard: Any) -> None:
    for zero in (yard.done, yard.credit, yard.memory, yard.free, yard.idle, yard.wake):
        zero[:] = 0
    yard.sent[:] = _UNKNOWN
    yard.left[:] = -network.occupancy
    for device in range(len(yard.place)):
        yard.place[device] = network.offsets[device]


@compiled
def _choose(network: Any, yard: Any, weights: Any, device: int) -> tuple[int, int]:
    """Return the queue that a device runs next and the start; or -1, and set when to look again."""
    now, here = yard.wake[device], yard.place[device] - network.offsets[device]
    length = network.offsets[device + 1] - network.offsets[device]
    thirds = 3.0 * here / length
    begin, late = max(0.0, 1.0 - thirds), max(0.0, thirds - 2.0)
    middle = 1.0 - begin - late
    along = device / max(1, len(yard.wake) - 1)
    full = yard.memory[device] / max(1, network.limit[device])
    best, score, start, earliest = -1, -np.inf, 0, _NEVER
    for q in range(yard.offsets[device], yard.offsets[device + 1]):
        ready = _ready(network, yard, device, q, here, length)
        earliest = min(earliest, ready)
        if ready == _NEVER:
            continue
        w = weights[q - yard.offsets[device]]
        value = begin * (w[0] + along * w[3]) + middle * (w[1] + along * w[4]) + late * (w[2] + along * w[5])
        value += full * w[_FULL] - w[WAITING] * (ready - now)
        if value > score:
            best, score, start = q, value, ready
    if earliest > now:
        yard.wake[device] = earliest
        return -1, 0
    return best, start


@compiled
def _ready(network: Any, yard: Any, device: int, q: int, here: int, length: int) -> int:
    """Return when the head of a queue can start; `_NEVER` if that is not known yet."""
    k, taken, delta = yard.done[q], network.takes[q], network.delta[q]
    if k == yard.size[q]:
        return _NEVER
    # an iteration that is flushed ends before the next one begins; divisions are slow
    if network.block < length and k * length // yard.size[q] // network.block > here // network.block:
        return _NEVER
    if taken >= 0 and yard.credit[taken] == 0:
        return _NEVER
    if delta > 0 and yard.memory[device] + delta > network.limit[device] - yard.reserve[q]:
        return _NEVER
    x = yard.first[q] + k
    source = network.source[x]
    if source < 0:
        return int(yard.free[device])
    if yard.sent[source] == _UNKNOWN:
        return _NEVER
    return int(max(yard.free[device], yard.sent[source] + network.lag[x]))


@compiled
def _run(network: Any, yard: Any, device: int, q: int, start: int) -> None:
    """Run the head of a queue, and wake the device that waits for it."""
    x = yard.first[q] + yard.done[q]
    yard.done[q] += 1
    yard.item[yard.place[device]] = x
    yard.place[device] += 1
    yard.sent[x] = yard.free[device] = yard.wake[device] = start + network.duration[q]
    link = network.link[x]
    if link >= 0:
        yard.sent[x] = yard.left[link] = max(yard.sent[x], yard.left[link] + network.occupancy)
    yard.memory[device] += network.delta[q]
    if network.takes[q] >= 0:
        yard.credit[network.takes[q]] -= 1
    for given in network.gives[q]:
        if given >= 0:
            yard.credit[given] += 1
    after = network.target[x]
    if after >= 0:
        other = network.home[after]
        arrival = max(yard.free[other], yard.sent[x] + network.lag[after])
        yard.wake[other] = min(yard.wake[other], arrival)
