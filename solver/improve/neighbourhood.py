"""Large neighbourhood search: CP-SAT reorders the operations that some devices start in a time interval.

References
----------
P. Shaw, "Using constraint programming and local search methods to solve vehicle routing problems",
CP 1998; for job shops, D. Godard, P. Laborie and W. Nuijten, "Randomized large neighborhood search for
cumulative scheduling", ICAPS 2005.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise, product
from time import perf_counter

import numpy as np

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import Operation, OpKind
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget
from tightpipe.params.search import NeighbourhoodParams

from ..cpsat.lattice import LatticeModel
from ..cpsat.plain import PlainModel
from ..cpsat.race import SECONDS_OF_EFFORT, search
from ..engine.portfolio import Worker
from ..engine.run import Incumbent, in_queue_order
from ..outcome import FINISHED, Outcome, Worked
from ..queues import Queues, Rule, queues_of, rules_of
from ..windows.window_state_kernel import open_state, under_horizon
from ..windows.windows import Windows, settle
from .words import positions_of


def within_reach(instance: Instance, params: NeighbourhoodParams) -> bool:
    """Return whether neighbourhoods of an instance can be searched in a short time, if by the plain model."""
    return _suits_lattice(instance) or len(arrays_of(instance).queue) <= params.most_joint


def _suits_lattice(instance: Instance) -> bool:
    """Return whether the lattice model searches neighbourhoods.

    Where there are joint operations, the plain model finds more in a short time (docs/research/exact.md).
    """
    return not rules_of(instance).keys() & {Rule.PAIRS, Rule.FUSED, Rule.OFFLOAD}


class Neighbourhoods:
    """Improves the incumbent until the deadline; each step searches one neighbourhood.

    A neighbourhood consists of the operations that start in one interval of time on some adjacent devices.
    After a neighbourhood that CP-SAT could search in full, the next neighbourhood is larger; otherwise it is
    smaller.
    """

    def __init__(self, instance: Instance, incumbent: Incumbent, worker: Worker) -> None:
        self._queues, self._incumbent = queues_of(instance), incumbent
        self._random = np.random.default_rng(worker.budget.seed)
        self._params = worker.whole.params.neighbourhoods
        self._share, self._searched, self._building = self._params.first, 0, 0.0

    def step(self, worker: Worker) -> Outcome:
        """Search a neighbourhood of the incumbent."""
        # to build a model cannot be stopped; without a deadline, what is done may not depend on the clock
        if worker.budget.left <= (0.0 if worker.whole.endless else self._building):
            return FINISHED
        begun = perf_counter()
        params, known = self._params, self._incumbent
        schedule = in_queue_order(known.schedule).without_copies()
        free = _choose(self._queues, schedule, self._share, params.narrow, self._random)
        model = self._model(schedule, free, worker)
        self._building = perf_counter() - begun
        if model is not None:
            self._searched += 1
            budget = worker.budget.reseeded(self._searched)
            found = search(model, budget, lambda *_: None, effort=params.effort)
            known.offer(found.schedule)
            self._share = min(1.0, self._share * (params.grow if found.exhausted else params.shrink))
            if found.ended.early:
                return found.ended
        return Worked(params.effort * SECONDS_OF_EFFORT)

    def _model(self, schedule: Schedule, free: Bools, worker: Worker) -> LatticeModel | PlainModel | None:
        """Return the model of a neighbourhood; None if propagation alone refutes it."""
        if not _suits_lattice(schedule.instance):
            return _plain_model(schedule, free, self._incumbent.bound)
        windows = _windows(self._queues, schedule, free, worker.budget)
        if not windows.feasible:
            return None
        much_idle = worker.whole.params.cpsat.much_idle
        return LatticeModel(self._queues, windows, self._incumbent.bound, much_idle=much_idle)


def _choose(
    queues: Queues, schedule: Schedule, share: float, narrow: float, random: np.random.Generator
) -> Bools:
    """Choose a random neighbourhood, and return whether it has the operation of each row of the order.

    It covers all devices for the given share of the schedule's time or, with the probability `narrow`, a
    random number of them for longer; less near the begin and the end. Its operations are called free.
    """
    start, devices = schedule.start, queues.instance.devices
    wide = int(random.integers(1, devices, endpoint=True)) if random.random() < narrow else devices
    lowest = int(random.integers(0, devices - wide, endpoint=True))
    length = min(1.0, share * devices / wide) * (start.max() - start.min())
    begin = start.min() + (start.max() - start.min() + length) * random.random() - length
    device = np.repeat(np.arange(devices), np.diff(schedule.order.offsets))
    in_time = (begin <= start) & (start <= begin + length)
    return np.asarray(in_time & (lowest <= device) & (device < lowest + wide))


def _plain_model(schedule: Schedule, free: Bools, bound: int) -> PlainModel:
    """Return the plain model for costs below that of the schedule, in which only free operations move.

    Likewise two operations are joined, or parted, only where both are free. All copies are free.
    """
    model = PlainModel(schedule.instance, cost(schedule) - 1, bound, fifo=True)
    order, joint = schedule.order, model.variables.joint
    parts = [_parts(order.operation_at(row)) for row in range(len(order))]
    firsts = np.flatnonzero(order.pairs)
    free = free.copy()
    free[firsts] = free[firsts + 1] = free[firsts] & free[firsts + 1]  # a pair is free as a whole
    loose = {op for row in np.flatnonzero(free).tolist() for op in parts[row]}
    paired = {(parts[row][0], parts[row + 1][0]) for row in firsts.tolist()}
    fused = {ops[0] for ops in parts if len(ops) == 2} - {b for _, b in paired}
    for (f, b), literal in joint.pairs.items():
        if not {f, *_parts(b._replace(kind=OpKind.BW))} <= loose:
            model.model.add(literal == ((f, b) in paired))
    for b, literal in joint.fused.items():
        if not {*_parts(b._replace(kind=OpKind.BW))} <= loose:
            model.model.add(literal == (b in fused))
    for device in range(order.devices):
        rows = range(order.offsets[device], order.offsets[device + 1])
        groups = [
            [op for row in group for op in (parts[row] if is_free else parts[row][:1])]
            for is_free, group in _groups(rows, free, order.pairs)
        ]
        for before, after in pairwise(groups):
            for first, second in product(before, after):
                if second.kind is not OpKind.W or second._replace(kind=OpKind.B) not in after:
                    model.model.add(model.variables.start[second] >= model.variables.end[first])
    return model


def _parts(op: Operation) -> tuple[Operation, ...]:
    """Return the B and the W of a BW, and any other operation as it is."""
    if op.kind is not OpKind.BW:
        return (op,)
    return op._replace(kind=OpKind.B), op._replace(kind=OpKind.W)


def _groups(rows: Iterable[int], free: Bools, pairs: Ints) -> Iterator[tuple[bool, list[int]]]:
    """Yield free rows that follow one another as one group, and each slot of other rows as a group."""
    group: list[int] = []
    for row in rows:
        if group and not (free[row] and free[group[-1]]) and not pairs[group[-1]]:
            yield bool(free[group[0]]), group
            group = []
        group.append(row)
    if group:
        yield bool(free[group[0]]), group


def _windows(queues: Queues, schedule: Schedule, free: Bools, budget: Budget) -> Windows:
    """Return windows for costs below that of the schedule, in which only free operations change places."""
    horizon = cost(schedule) - 1
    arrays = under_horizon(queues.instance, horizon, budget.params.windows)
    windows = Windows(horizon, arrays, True, open_state(arrays, horizon))
    place = np.argsort(positions_of(queues, schedule.order).item)  # positions rise along each queue
    free = free[place]
    for device in arrays.graph.devices:
        mine = slice(device["item"], device["item"] + device["items"])
        own = arrays.graph.queue[mine, None] == device["queue"] + np.arange(device["queues"])
        least, most = _ranks(own, place[mine], free[mine])
        before, after = (table[mine, : device["queues"]] for table in (windows.before, windows.after))
        before[:] = np.where(own, before, np.maximum(before, least))
        after[:] = np.where(own, after, np.minimum(after, most))
    return replace(windows, feasible=bool(np.all(arrays.idle >= 0)) and settle(arrays, windows.state, budget))


def _ranks(own: Bools, place: Ints, free: Bools) -> tuple[Ints, Ints]:
    """Return the least and largest number of items of each queue that may precede each item, shape (M, K).

    Each of the M items of a device has a place in the word, and two items may change places only if both are
    free. `own` says which of the K queues each item belongs to, shape (M, K).
    """
    word = np.argsort(place)
    now = np.empty(own.shape, np.int64)
    now[word] = np.cumsum(own[word], axis=0) - own[word]
    movable = own & free[:, None]
    first = (own & ~np.logical_or.accumulate(movable, axis=0)).sum(0)
    last = first + movable.sum(0)
    loose = free[:, None] & movable.any(0)
    return np.where(loose, np.minimum(now, first), now), np.where(loose, np.maximum(now, last), now)
