"""Dispatching rules, compiled: a few weights give a schedule, and annealing searches for the weights.

Whenever a device is free, it takes the queue with the largest score and runs its head, which is the next
item of that queue. The score is linear in the weights. It depends on how far the device has come in its word,
on its place among the devices, on how full its memory is, and on how long it would have to wait for the head.
A change of one weight thus moves operations of many microbatches on all devices at once, whereas a move of
annealing shifts a single operation.

Where fused backwards save time, a queue of B's has a second row of weights, and a B is fused with a W if the
value that these give is above 0. Its weight of waiting counts the ticks by which the next device would start
later because of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.kernels.compiled import compiled
from tightpipe.model.operation import FUSED, OpKind

from ..queues import Queues
from .words import EventGraph

GeneratorState = NDArray[np.uint64]  # shape (1,), not 0


@compiled
def draw(random: GeneratorState) -> float:
    """Return a uniform random number in [0, 1) by Marsaglia's xorshift, and advance the generator."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return float(x >> np.uint64(11)) * 2.0**-53


@compiled
def draw_normal(random: GeneratorState) -> float:
    """Return a normal random number of mean 0 and variance 1 (Box and Muller 1958)."""
    return float(np.sqrt(-2.0 * np.log(1.0 - draw(random))) * np.cos(2.0 * np.pi * draw(random)))


class DispatchState(NamedTuple):
    """The queues that a rule chooses from, and how far a run has come.

    There are Q queues, N items, p devices, C kinds of credit and L links; `words` defines items,
    positions and credits. The arrays up to `work` never change.
    """

    first: Ints  # (Q,) first item of each queue
    size: Ints  # (Q,) number of items of each queue
    offsets: Ints  # (p + 1,) device d has the queues offsets[d] to offsets[d + 1] - 1
    reserve: Ints  # (Q,) memory that an item of each queue must leave free
    weight: Ints  # (Q,) the queue of the W of each queue of B's that may be fused; else -1
    fuse: Ints  # (Q,) row of the weights that decide whether a B is fused, -1 where that saves no time
    saved: Ints  # (Q,) ticks that a fused backward saves
    work: Ints  # (p,) least ticks that the items of each device take together, one at a time
    done: Ints  # (Q,) number of items of each queue that have run
    credit: Ints  # (C,) credits given and not yet taken
    memory: Ints  # (p,) memory that each device holds
    free: Ints  # (p,) when the last item of each device ended
    idle: Ints  # (p,) ticks that each device has idled so far
    place: Ints  # (p,) next position of each device
    wake: Ints  # (p,) when each device next looks for an item to run
    sent: Ints  # (N,) when each item's message leaves, -1 before the item has run
    left: Ints  # (L,) when the last message on each link left
    item: Ints  # (N,) item at each position: the words that the rule gives
    joined: Ints  # (N,) how it runs with the next one: `SINGLE` or `FUSED`


def dispatch_state_for(queues: Queues, graph: EventGraph) -> DispatchState:
    """Return a state for runs on the instance of these queues, before the first run."""

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int64)

    p, items = queues.instance.devices, len(graph.arrays.queue)
    count = np.array([queue.count for queue in queues.queues])
    home = np.array([queue.device for queue in queues.queues])
    weight, fuse, saved = _fusing(queues, graph)
    work = np.array([queue.count * queue.duration for queue in queues.queues]) - saved * count
    return DispatchState(
        first=np.cumsum(count) - count,
        size=count,
        offsets=np.searchsorted(home, np.arange(p + 1)),
        reserve=_reserves(queues),
        weight=weight,
        fuse=fuse,
        saved=saved,
        work=np.bincount(home, work, p).astype(np.int64),
        done=ints(len(count)),
        credit=ints(graph.arrays.credits),
        **{name: ints(p) for name in ("memory", "free", "idle", "place", "wake")},
        sent=ints(items),
        left=ints(graph.arrays.links),
        item=ints(items),
        joined=ints(items),
    )


def _fusing(queues: Queues, graph: EventGraph) -> tuple[Ints, Ints, Ints]:
    """Return the arrays `weight`, `fuse` and `saved`."""
    weight, fuse, saved = np.full((3, len(queues.queues)), -1)
    saved[:] = 0
    widest = max(len(queues.on(device)) for device in range(queues.instance.devices))
    for device in range(queues.instance.devices):
        mine = [q for q in queues.on(device) if queues.queues[q].kind is OpKind.B]
        for k, q in enumerate(mine):
            ticks = int(graph.arrays.queues[q]["fused"])
            w = queues.index.get((OpKind.W, *queues.queues[q].members[0]), -1)
            apart = queues.queues[q].duration + (queues.queues[w].duration if w >= 0 else 0)
            if 0 < ticks < apart:
                weight[q], fuse[q], saved[q] = w, widest + k, apart - ticks
    return weight, fuse, saved


def _reserves(queues: Queues) -> Ints:
    """Return the memory that an item of each queue must leave free, shape (Q,).

    An F leaves room for one F of each later slice and at each later stage of its route on the same device,
    those that its own microbatch may still need. So the oldest unfinished microbatch never waits for memory
    that younger ones hold. Every other item leaves none.
    """
    reserve = np.zeros(len(queues.queues), np.int64)
    routes, slices = queues.instance.class_routes, queues.instance.class_slices
    for q, queue in enumerate(queues.queues):
        if queue.kind is OpKind.F:
            ((c, stage),) = queue.members
            for f in (queues.queues[r] for r in queues.on(queue.device)):
                ((d, other), *_) = f.members
                own = d == c or (
                    routes[d] == routes[c] and slices[d] != slices[c]
                )  # of the same microbatches
                if f.kind is OpKind.F and own and (other > stage or slices[d] > slices[c]):
                    reserve[q] += f.delta
    return reserve


Weights = Floats  # shape (R, FEATURES): row k has the weights of the k-th queue of every device

# Of the weights of a queue, number 0 counts at the start of the word, and fades out over its first third.
# Number 1 counts fully in the middle third, and number 2 grows to its full value over the last third. Weights
# 3 to 5 count likewise, times the device's place, which goes from 0 for the first device to 1 for the last.
FEATURES = 8
_FULL = 6  # index of the weight of the share of the memory limit that is in use
WAITING = 7  # index of the weight that is subtracted for each tick of waiting for the head
_NEVER = 2**62
_UNKNOWN = -1  # stands for the departure of a message whose item has not run
_FUSING = 0.3  # first weight of fusing: a B for which nobody waits more than this, in units, is fused


def first_weights(queues: Queues, unit: float) -> Weights:
    """Return the weights of a first rule: B before F, F of a later stage before F of an earlier one, W last.

    Backwards are fused where nobody waits long for the B.

    On devices of more than four stages, the rule does not put B before F of the latest stages. With two
    routes, it puts every F of route 1 before those of route 0.

    Parameters
    ----------
    queues
        The queues of the instance.
    unit
        Ticks of waiting that count as much as a difference of 1 between two scores.

    Returns
    -------
    Weights
        Shape (R, FEATURES), where R is the largest number of queues on one device and, where fused
        backwards save time, the largest number of queues of B's on one device.
    """
    widest = max((queues.on(d) for d in range(queues.instance.devices)), key=len)
    weights = np.zeros((len(widest), FEATURES))
    for role, q in enumerate(widest):
        kind = queues.queues[q].kind
        weights[role, :3] = 4.0 if kind is OpKind.B else 2.0 + role / 2 if kind is OpKind.F else 0.0
    if queues.instance.fusing_saves:
        fusing = np.zeros((sum(queues.queues[q].kind is OpKind.B for q in widest), FEATURES))
        fusing[:, :3] = _FUSING
        weights = np.concatenate([weights, fusing])
    weights[:, WAITING] = 1.0 / unit
    return weights


@compiled
def dispatch(graph: EventGraph, state: DispatchState, weights: Weights, enough: float) -> float:
    """Run all items by a rule, and write the resulting words to `state.item`.

    Parameters
    ----------
    graph
        The event graph of the instance.
    state
        The arrays that the run works in; their values from an earlier run do not matter.
    weights
        The weights of the rule.
    enough
        The largest cost that is of use, in ticks.

    Returns
    -------
    float
        The cost in ticks with the start times of this run, which is an upper bound of the cost of the words.
        The result is `np.inf` if this cost is above `enough`, or if items are left and no device can run one.
    """
    _open(graph, state)
    placed = 0
    while placed < len(state.item):
        device, q, start = 0, -1, 0
        while q < 0:
            device = int(np.argmin(state.wake))
            if state.wake[device] == _NEVER:
                return np.inf
            q, start = _choose(graph, state, weights, device)
        if state.place[device] > graph.offsets[device] or not graph.spans:
            state.idle[device] += start - state.free[device]
            if state.work[device] + state.idle[device] > enough:
                return np.inf
        ticks = graph.arrays.queues[q].duration
        if state.fuse[q] >= 0:
            if _fuses(graph, state, weights, device, q, start):
                state.joined[state.place[device]] = FUSED
                _run(graph, state, device, q, start, graph.arrays.queues[q].fused)
                q, start, ticks = state.weight[q], state.free[device], 0
                placed += 1
            else:
                state.idle[device] += state.saved[q]
        _run(graph, state, device, q, start, ticks)
        placed += 1
    largest = 0
    for device in range(len(state.work)):
        largest = max(largest, state.work[device] + state.idle[device])
    return float(largest)


@compiled
def _open(graph: EventGraph, state: DispatchState) -> None:
    for zero in (state.done, state.credit, state.memory, state.free, state.idle, state.wake, state.joined):
        zero[:] = 0
    state.sent[:] = _UNKNOWN
    state.left[:] = -graph.arrays.occupancy
    for device in range(len(state.place)):
        state.place[device] = graph.offsets[device]


@compiled
def _choose(graph: EventGraph, state: DispatchState, weights: Weights, device: int) -> tuple[int, int]:
    """Return the queue whose head the device runs next, and the start of that item in ticks.

    If no head can start now, return -1 and 0, and set the tick at which the device looks again.
    """
    now, here = state.wake[device], state.place[device] - graph.offsets[device]
    length = graph.offsets[device + 1] - graph.offsets[device]
    begin, middle, late, along = _place(graph, state, device)
    full = state.memory[device] / max(1, graph.arrays.devices[device].limit)
    best, score, start, earliest = -1, -np.inf, 0, _NEVER
    for q in range(state.offsets[device], state.offsets[device + 1]):
        ready = _ready(graph, state, device, q, here, length)
        earliest = min(earliest, ready)
        if ready == _NEVER:
            continue
        w = weights[q - state.offsets[device]]
        value = begin * (w[0] + along * w[3]) + middle * (w[1] + along * w[4]) + late * (w[2] + along * w[5])
        value += full * w[_FULL] - w[WAITING] * (ready - now)
        if value > score:
            best, score, start = q, value, ready
    if earliest > now:
        state.wake[device] = earliest
        return -1, 0
    return best, start


@compiled
def _place(graph: EventGraph, state: DispatchState, device: int) -> tuple[float, float, float, float]:
    """Return how much the weights of the first, middle and last third count, and the device's place."""
    length = graph.offsets[device + 1] - graph.offsets[device]
    thirds = 3.0 * (state.place[device] - graph.offsets[device]) / length
    begin, late = max(0.0, 1.0 - thirds), max(0.0, thirds - 2.0)
    return begin, 1.0 - begin - late, late, device / max(1, len(state.wake) - 1)


@compiled
def _fuses(
    graph: EventGraph, state: DispatchState, weights: Weights, device: int, q: int, start: int
) -> bool:
    """Return whether the head of a queue of B's, which starts at tick `start`, is fused with a W."""
    begin, middle, late, along = _place(graph, state, device)
    w = weights[state.fuse[q]]
    value = begin * (w[0] + along * w[3]) + middle * (w[1] + along * w[4]) + late * (w[2] + along * w[5])
    value += w[_FULL] * state.memory[device] / max(1, graph.arrays.devices[device].limit)
    after = graph.arrays.items[state.first[q] + state.done[q]].target
    if after >= 0:
        there, queue = graph.arrays.items[after], graph.arrays.queues[q]
        free, soon = state.free[there.home], start + queue.duration + there.lag
        late_start = max(free, start + queue.fused + there.lag)
        value -= w[WAITING] * (late_start - max(free, soon))
    return bool(value > 0.0)


@compiled
def _ready(graph: EventGraph, state: DispatchState, device: int, q: int, here: int, length: int) -> int:
    """Return the tick at which the head of a queue can start, or `_NEVER`.

    It is `_NEVER` if the queue is empty, or if the head has to wait for a message whose arrival is not known,
    for a credit, for memory or for a flush. `here` is the device's position in its word, from 0, and `length`
    the length of that word.
    """
    k, block = state.done[q], graph.block[device]
    needed = max(0, graph.arrays.queues[q].delta) + graph.arrays.queues[q].passing
    if k == state.size[q]:
        return _NEVER
    # An iteration that is flushed ends before the next one begins. The first comparison spares other
    # instances the divisions, which are slow.
    if block < length and k * length // state.size[q] // block > here // block:
        return _NEVER
    for taken in graph.arrays.queues[q].takes:
        if taken >= 0 and state.credit[taken] == 0:
            return _NEVER
    if needed > 0 and state.memory[device] + needed > graph.arrays.devices[device].limit - state.reserve[q]:
        return _NEVER
    x, free = state.first[q] + k, max(state.free[device], graph.arrays.queues[q].ready)
    source = graph.arrays.items[x].source
    if source < 0:
        return int(free)
    if state.sent[source] == _UNKNOWN:
        return _NEVER
    return int(max(free, state.sent[source] + graph.arrays.items[x].lag))


@compiled
def _run(graph: EventGraph, state: DispatchState, device: int, q: int, start: int, ticks: int) -> None:
    """Run the head of queue `q`, which starts at tick `start` and takes `ticks`.

    The device that waits for the message of this item looks again when the message arrives.
    """
    x = state.first[q] + state.done[q]
    state.done[q] += 1
    state.item[state.place[device]] = x
    state.place[device] += 1
    state.sent[x] = state.free[device] = state.wake[device] = start + ticks
    link = graph.arrays.queues[q].link
    if link >= 0:
        state.sent[x] = state.left[link] = max(state.sent[x], state.left[link] + graph.arrays.occupancy)
    state.memory[device] += graph.arrays.queues[q].delta
    for taken in graph.arrays.queues[q].takes:
        if taken >= 0:
            state.credit[taken] -= 1
    for given in graph.arrays.queues[q].gives:
        if given >= 0:
            state.credit[given] += 1
    after = graph.arrays.items[x].target
    if after >= 0:
        other = graph.arrays.items[after].home
        arrival = max(state.free[other], state.sent[x] + graph.arrays.items[after].lag)
        state.wake[other] = min(state.wake[other], arrival)


class TuneNumbers(NamedTuple):
    """The parameters of `RuleParams` that a change of weights reads."""

    most_changed: int
    smallest: float
    largest: float


@compiled
def tune(
    graph: EventGraph,
    state: DispatchState,
    random: GeneratorState,
    moves: int,
    warmth: float,
    cost: float,
    best: float,
    weights: Weights,
    numbers: TuneNumbers,
) -> tuple[float, float]:
    """Try changes of the weights at one temperature.

    Parameters
    ----------
    graph
        The event graph of the instance.
    state
        The arrays that a run of a rule works in.
    random
        State of the random number generator.
    moves
        Number of changes to try.
    warmth
        Temperature in ticks: a change that raises the cost by this much is taken with probability 1/e.
    cost, best
        The cost of the present weights, and the least cost so far, in ticks; both `np.inf` at first.
    weights
        The present weights, the best weights so far, and a working copy, shape (3, R, FEATURES), where R is
        the largest number of queues on one device. All three are changed in place.
    numbers
        The parameters of a change.

    Returns
    -------
    cost, best
        The same two costs after the last change was tried.
    """
    now, kept, other = weights[0], weights[1], weights[2]
    for _ in range(moves):
        _copy(now, other)
        _change(random, other, numbers)
        enough = cost - warmth * np.log(1.0 - draw(random))
        new = dispatch(graph, state, other, enough)
        if new == np.inf:
            continue
        cost = new
        _copy(other, now)
        if cost < best:
            best = cost
            _copy(now, kept)
    return cost, best


@compiled
def _change(random: GeneratorState, weights: Weights, numbers: TuneNumbers) -> None:
    """Add random numbers to some random weights; a weight of waiting is scaled, so that it stays above 0."""
    size = numbers.smallest * (numbers.largest / numbers.smallest) ** draw(random)
    for _ in range(1 + int(draw(random) * numbers.most_changed)):
        role, feature = int(draw(random) * len(weights)), int(draw(random) * FEATURES)
        step = size * draw_normal(random)
        if feature == WAITING:
            weights[role, feature] *= np.exp(step)
        else:
            weights[role, feature] += step


@compiled
def _copy(old: Weights, new: Weights) -> None:
    for role in range(len(old)):
        for feature in range(FEATURES):
            new[role, feature] = old[role, feature]
