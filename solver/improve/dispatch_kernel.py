"""Dispatching rules, compiled: a few weights give a schedule, and annealing searches for the weights.

Whenever a device is free, it takes the line with the largest score and runs its head, which is the next item
of that line. The score is linear in the weights. It depends on how far the device has come in its word, on
its place among the devices, on how full its memory is, and on how long it would have to wait for the head. A
change of one weight thus moves operations of many microbatches on all devices at once, whereas a move of
annealing shifts a single operation.

Where microbatches are alike, each queue is a *line*. Where they differ, the queues of all classes at a stage
form one line, whose items run in a sequence of the microbatches that all devices share. This sequence is part
of the rule, so that a change of it exchanges two microbatches everywhere, or moves one. All W's of a device
are then one line, in which they stand in the sequence of their B's.

Where fused backwards save time, a queue of B's has a second row of weights, and a B is fused with a W if the
value that these give is above 0. Its weight of waiting counts the ticks by which the next device would start
later because of that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tightpipe.kernels.arrays import Bools, Floats, Ints
from tightpipe.kernels.compiled import compiled, compiled_inline
from tightpipe.model.graph_arrays import arrays_of
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
    """The lines that a rule chooses from, and how far a run has come.

    There are Q queues, M lines, N items, p devices, n microbatches, C kinds of credit and L links; `words`
    defines items, positions and credits. The arrays up to `work` never change.
    """

    line: Ints  # (Q,) line of each queue
    first: Ints  # (M,) place in `member` of the first item of each line
    size: Ints  # (M,) number of items of each line
    fixed: Bools  # (M,) whether a line has its items from the beginning; W's join a line when their B's run
    offsets: Ints  # (p + 1,) device d has the lines offsets[d] to offsets[d + 1] - 1
    reserve: Ints  # (Q,) memory that an item of each queue must leave free
    weight: Ints  # (Q,) the queue of the W's of each queue of B's; else -1
    fuse: Ints  # (Q,) row of the weights that decide whether a B is fused, -1 where that saves no time
    saved: Ints  # (Q,) ticks that a fused backward saves
    work: Ints  # (p,) least ticks that the items of each device take together, one at a time
    member: Ints  # (N,) queue of each item of each line
    joins: Ints  # (M,) number of items that have joined each line
    head: Ints  # (M,) number of items that have left each line
    ran: Ints  # (M,) number of items of each line that have run: those, and W's that ran with their B's
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
    line = _lines(queues)
    lines = int(line.max()) + 1
    _, a_queue = np.unique(line, return_index=True)  # of each line
    size = np.bincount(line, count, lines).astype(np.int64)
    weight, fuse, saved = _fusing(queues, graph, line)
    work = np.array([queue.count * queue.duration for queue in queues.queues]) - saved * count
    return DispatchState(
        line=line,
        first=np.cumsum(size) - size,
        size=size,
        fixed=graph.arrays.queues["kind"][a_queue] != OpKind.W,
        offsets=np.searchsorted(home[a_queue], np.arange(p + 1)),
        reserve=_reserves(queues),
        weight=weight,
        fuse=fuse,
        saved=saved,
        work=np.bincount(home, work, p).astype(np.int64),
        member=np.repeat(np.arange(len(count)), count),
        **{name: ints(lines) for name in ("joins", "head", "ran")},
        done=ints(len(count)),
        credit=ints(graph.arrays.credits),
        **{name: ints(p) for name in ("memory", "free", "idle", "place", "wake")},
        sent=ints(items),
        left=ints(graph.arrays.links),
        item=ints(items),
        joined=ints(items),
    )


def _lines(queues: Queues) -> Ints:
    """Return the line of each queue, shape (Q,); those of one device lie next to each other."""
    if not queues.instance.differ:
        return np.arange(len(queues.queues))
    kinds, routes = arrays_of(queues.instance).queues["kind"], queues.instance.class_routes
    keys = []
    for kind, queue in zip(kinds.tolist(), queues.queues, strict=True):
        mb_class, stage = queue.members[0]
        own = () if kind == OpKind.W else (stage, routes[mb_class])
        keys.append((queue.device, kind, own))
    number = {key: line for line, key in enumerate(sorted(set(keys)))}
    return np.array([number[key] for key in keys])


def _roles(queues: Queues) -> list[list[OpKind]]:
    """Return the kinds of the lines of each device."""
    line = _lines(queues).tolist()
    kinds = [
        {line[q]: queues.queues[q].kind for q in queues.on(device)}
        for device in range(queues.instance.devices)
    ]
    return [[of[key] for key in sorted(of)] for of in kinds]


def _fusing(queues: Queues, graph: EventGraph, line: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the arrays `weight`, `fuse` and `saved`."""
    weight, fuse, saved = np.full((3, len(queues.queues)), -1)
    saved[:] = 0
    widest = max(map(len, _roles(queues)))
    for device in range(queues.instance.devices):
        mine = [q for q in queues.on(device) if queues.queues[q].kind is OpKind.B]
        rows = {one: widest + k for k, one in enumerate(sorted({int(line[q]) for q in mine}))}
        for q in mine:
            ticks = int(graph.arrays.queues[q]["fused"])
            weight[q] = w = queues.index.get((OpKind.W, *queues.queues[q].members[0]), -1)
            apart = queues.queues[q].duration + (queues.queues[w].duration if w >= 0 else 0)
            if 0 < ticks < apart:
                fuse[q], saved[q] = rows[int(line[q])], apart - ticks
    return weight, fuse, saved


def _reserves(queues: Queues) -> Ints:
    """Return the memory that an item of each queue must leave free, shape (Q,).

    An F leaves room for one F of each later slice and at each later stage of its route on the same device,
    those that its own microbatch may still need. So the oldest unfinished microbatch never waits for memory
    that younger ones hold. Every other item leaves none.
    """
    reserve = np.zeros(len(queues.queues), np.int64)
    routes, slices = queues.instance.class_routes, queues.instance.class_slices
    # queues of the F's of the same microbatches on each device
    held: dict[tuple[object, ...], list[int]] = {}
    for q, queue in enumerate(queues.queues):
        if queue.kind is OpKind.F:
            ((c, _),) = queue.members
            same = routes[c] if queues.instance.slices else c
            held.setdefault((queue.device, same), []).append(q)
    for mine in held.values():
        places = [(stage, slices[c]) for ((c, stage),) in (queues.queues[q].members for q in mine)]
        for q, (stage, j) in zip(mine, places, strict=True):
            later = [s > stage or i > j for s, i in places]
            reserve[q] = sum(queues.queues[r].delta for r, after in zip(mine, later, strict=True) if after)
    return reserve


Weights = Floats  # shape (R, FEATURES): row k has the weights of the k-th line of every device

# Of the weights of a line, number 0 counts at the start of the word, and fades out over its first third.
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
        Shape (R, FEATURES), where R is the largest number of lines on one device and, where fused
        backwards save time, the largest number of lines of B's on one device.
    """
    roles = _roles(queues)
    widest = max(roles, key=len)
    weights = np.zeros((len(widest), FEATURES))
    for role, kind in enumerate(widest):
        weights[role, :3] = 4.0 if kind is OpKind.B else 2.0 + role / 2 if kind is OpKind.F else 0.0
    if queues.instance.fusing_saves:
        fusing = np.zeros((max(kinds.count(OpKind.B) for kinds in roles), FEATURES))
        fusing[:, :3] = _FUSING
        weights = np.concatenate([weights, fusing])
    weights[:, WAITING] = 1.0 / unit
    return weights


@compiled
def dispatch(
    graph: EventGraph, state: DispatchState, weights: Weights, sequence: Ints, enough: float
) -> float:
    """Run all items by a rule, and write the resulting words to `state.item`.

    Parameters
    ----------
    graph
        The event graph of the instance.
    state
        The arrays that the run works in; their values from an earlier run do not matter.
    weights
        The weights of the rule.
    sequence
        The microbatches in the sequence of the rule if they differ; else empty.
    enough
        The largest cost that is of use, in ticks.

    Returns
    -------
    float
        The cost in ticks with the start times of this run, which is an upper bound of the cost of the words.
        The result is `np.inf` if this cost is above `enough`, or if items are left and no device can run one.
    """
    _open(graph, state)
    if len(sequence) > 0:
        _line_up(graph, state, sequence)
    placed = 0
    while placed < len(state.item):
        device, line, start = 0, -1, 0
        while line < 0:
            device = int(np.argmin(state.wake))
            if state.wake[device] == _NEVER:
                return np.inf
            line, start = _choose(graph, state, weights, device)
        q = state.member[state.first[line] + state.head[line]]
        state.head[line] += 1
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
                _join(state, state.weight[q])
        elif state.weight[q] >= 0:
            _join(state, state.weight[q])
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
    for zero in (state.head, state.ran):
        zero[:] = 0
    for line in range(len(state.joins)):
        state.joins[line] = state.size[line] if state.fixed[line] else 0
    state.sent[:] = _UNKNOWN
    state.left[:] = -graph.arrays.occupancy
    for device in range(len(state.place)):
        state.place[device] = graph.offsets[device]


@compiled
def _line_up(graph: EventGraph, state: DispatchState, sequence: Ints) -> None:
    """Let the F's and B's of all microbatches join their lines in a sequence."""
    state.joins[:] = 0
    nodes, node = graph.arrays.nodes, graph.arrays.node
    for microbatch in sequence:
        mb_class = graph.arrays.mb_class[microbatch]
        for kind in range(node.shape[0]):
            for stage in range(node.shape[2]):
                v = node[kind, mb_class, stage]
                if v >= 0 and state.fixed[state.line[nodes[v].queue]]:
                    _join(state, nodes[v].queue)


@compiled_inline
def _join(state: DispatchState, q: int) -> None:
    """Let an item of a queue join the queue's line."""
    line = state.line[q]
    state.member[state.first[line] + state.joins[line]] = q
    state.joins[line] += 1


@compiled
def _choose(graph: EventGraph, state: DispatchState, weights: Weights, device: int) -> tuple[int, int]:
    """Return the line whose head the device runs next, and the start of that item in ticks.

    If no head can start now, return -1 and 0, and set the tick at which the device looks again.
    """
    now, here = state.wake[device], state.place[device] - graph.offsets[device]
    length = graph.offsets[device + 1] - graph.offsets[device]
    begin, middle, late, along = _place(graph, state, device)
    full = state.memory[device] / max(1, graph.arrays.devices[device].limit)
    best, score, start, earliest = -1, -np.inf, 0, _NEVER
    for line in range(state.offsets[device], state.offsets[device + 1]):
        ready = _ready(graph, state, device, line, here, length)
        earliest = min(earliest, ready)
        if ready == _NEVER:
            continue
        w = weights[line - state.offsets[device]]
        value = begin * (w[0] + along * w[3]) + middle * (w[1] + along * w[4]) + late * (w[2] + along * w[5])
        value += full * w[_FULL] - w[WAITING] * (ready - now)
        if value > score:
            best, score, start = line, value, ready
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
    after = graph.arrays.items[graph.arrays.first[q] + state.done[q]].target
    if after >= 0:
        there, queue = graph.arrays.items[after], graph.arrays.queues[q]
        free, soon = state.free[there.home], start + queue.duration + there.lag
        late_start = max(free, start + queue.fused + there.lag)
        value -= w[WAITING] * (late_start - max(free, soon))
    return bool(value > 0.0)


@compiled
def _ready(graph: EventGraph, state: DispatchState, device: int, line: int, here: int, length: int) -> int:
    """Return the tick at which the head of a line can start, or `_NEVER`.

    It is `_NEVER` if the line is empty, or if the head has to wait for a message whose arrival is not known,
    for a credit, for memory or for a flush. `here` is the device's position in its word, from 0, and `length`
    the length of that word.
    """
    if state.head[line] == state.joins[line]:
        return _NEVER
    q, block = state.member[state.first[line] + state.head[line]], graph.block[device]
    needed = max(0, graph.arrays.queues[q].delta) + graph.arrays.queues[q].passing
    # An iteration that is flushed ends before the next one begins. The first comparison spares other
    # instances the divisions, which are slow.
    if block < length and state.ran[line] * length // state.size[line] // block > here // block:
        return _NEVER
    for taken in graph.arrays.queues[q].takes:
        if taken >= 0 and state.credit[taken] == 0:
            return _NEVER
    if needed > 0 and state.memory[device] + needed > graph.arrays.devices[device].limit - state.reserve[q]:
        return _NEVER
    x, free = graph.arrays.first[q] + state.done[q], max(state.free[device], graph.arrays.queues[q].ready)
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
    x = graph.arrays.first[q] + state.done[q]
    state.done[q] += 1
    state.ran[state.line[q]] += 1
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
    reorders: float


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
    sequences: Ints,
    numbers: TuneNumbers,
) -> tuple[float, float]:
    """Try changes of the weights and of the sequence of the microbatches at one temperature.

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
        the largest number of lines on one device. All three are changed in place.
    sequences
        The sequences of the microbatches of the same three rules, shape (3, n), or (3, 0) if all are alike.
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
        _copy_sequence(sequences[0], sequences[2])
        if sequences.shape[1] > 1 and draw(random) < numbers.reorders:
            _reorder(random, sequences[2])
        else:
            _change(random, other, numbers)
        enough = cost - warmth * np.log(1.0 - draw(random))
        new = dispatch(graph, state, other, sequences[2], enough)
        if new == np.inf:
            continue
        cost = new
        _copy(other, now)
        _copy_sequence(sequences[2], sequences[0])
        if cost < best:
            best = cost
            _copy(now, kept)
            _copy_sequence(sequences[0], sequences[1])
    return cost, best


@compiled
def _reorder(random: GeneratorState, sequence: Ints) -> None:
    """Exchange two random microbatches of a sequence, or move one to another place."""
    i, j = int(draw(random) * len(sequence)), int(draw(random) * len(sequence))
    moved = sequence[i]
    if draw(random) < 0.5:
        sequence[i] = sequence[j]
    else:
        step = 1 if i < j else -1
        for k in range(i, j, step):
            sequence[k] = sequence[k + step]
    sequence[j] = moved


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


@compiled
def _copy_sequence(old: Ints, new: Ints) -> None:
    for k in range(len(old)):
        new[k] = old[k]
