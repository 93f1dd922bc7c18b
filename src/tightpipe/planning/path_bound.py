"""A bound of all cuts where the order is fixed, which sees all devices at a time.

With a fixed order, a step takes as long as the longest path through a graph that is known: each operation
waits for the one before it on its device, and for its input. How often a path takes F and the backward of
each stage does not depend on the cut, so its length is linear in the times of the stages. The longest of some
paths is a bound of every cut, and an exact model (`solver.cpsat.cut_model`) says whether any cut is within a
target. If none is, no plan of the configuration costs as little. If one is, either its own longest path is
too long, and is added, or no bound of this kind reaches the target (cutting planes: J. E. Kelley 1960, J. F.
Benders 1962).

The bound holds because whatever is left out makes a step no shorter: no path gets shorter if operations or
messages take longer, or start later. Stages count with the ticks of their layers, for which `device_bound`
has the argument, plus those of recomputation; messages with their least time. Left out are reductions,
gathered parameters, transient memory, and which layers a framework can recompute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, groupby
from random import Random

import numpy as np

from tightpipe.solver.cpsat.cut_model import Cut, CutModel, Group, Room, StagePath

from ..explain.idle import arrivals
from ..kernels.arrays import Ints
from ..model.costs import Costs, Objective
from ..model.graph_arrays import NOTHING
from ..model.instance import Instance
from ..model.operation import OpKind
from ..model.orders import without_absent
from ..model.schedule import Order
from ..model.simulate import simulate
from ..params.budget import Budget
from .candidate import Candidate, comm_matrix
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .fixed_orders import ramps_of
from .problem import PlanningProblem

_FULL = 1000  # ticks of an F of a usual stage, for the first paths
_HALF, _LEAST = 0.5, 0.02  # shares of the gap that a target is to close
_SHORTEST = 1.0  # seconds for the first targets
_NUDGED = 6  # further paths for each cut that is too long
_LONGER = 1.3  # by up to this factor, stages are longer there


class PathBound:
    """Raises the bound of all cuts of a configuration with one fixed order, target by target.

    - `bound`: proven, in ticks.
    - `least`: the least that is known of a cut in this relaxation, which limits the bound.
    """

    def __init__(self, configuration: Configuration, order: Order, bound: int = 0) -> None:
        problem, placement = configuration.problem, configuration.placement
        self.configuration, self.bound, self.least = configuration, bound, NEVER
        self.groups = groups_of(problem)
        smallest = min((layer.output or 0 for layer in problem.model.layers[:-1]), default=0)
        comm = comm_matrix(problem, placement, [smallest] * placement.stages)
        costs = Costs(1, 1, 0, comm=comm)
        self._instance = Instance(placement, problem.batch.microbatches, costs, None, Objective.MAKESPAN)
        self._order = without_absent(self._instance, order)
        self._model = CutModel(self.groups, placement.stages, _rooms(configuration))
        self._known: set[tuple[bytes, bytes, int]] = set()
        self._first = self._first_times()
        self._reach, self._seconds = _HALF, _SHORTEST  # share of the gap up to the next target, and its time

    @property
    def may_rise(self) -> bool:
        """Whether no cut is known that costs as little as the bound in this relaxation."""
        return self.bound < self.least

    def step(self, cost: int, budget: Budget) -> Candidate | None:
        """Try to raise the bound towards `cost`; return a cut if it costs less in this relaxation.

        Targets lie in the middle of the gap, and nearer to the bound while that takes too long.
        """
        until = budget.shortened(self._seconds)
        for times in self._first:
            self._learn(*times)
            if until.left <= 0:
                return None
        target = self.bound + int(self._reach * (min(cost, self.least) - 1 - self.bound))
        while until.left > 0:
            cuts = self._model.within(target, until)
            if cuts.none:
                self.bound, self._reach = target + 1, min(_HALF, 2 * self._reach)
                return None
            if cuts.found is None:
                break
            times = self._times(cuts.found)
            length = self._learn(*times)
            if length <= target:
                self.least = min(self.least, length)
                return self._candidate(cuts.found)
            for seed in range(_NUDGED):
                self._learn(*_nudged(times, Random(len(self._known) + seed)))
        self._reach /= 2
        if self._reach < _LEAST:
            self._reach, self._seconds = _HALF, 2 * self._seconds
        return None

    def _learn(self, forward: Ints, backward: Ints) -> int:
        """Add the longest path for these times of the stages, in ticks, and return its length."""
        length, path = longest_path(self._instance, self._order, forward, backward)
        key = path.forwards.tobytes(), path.backwards.tobytes(), path.messages
        if key not in self._known:
            self._known.add(key)
            self._model.add_path(path)
        return length

    def _times(self, cut: Cut) -> tuple[Ints, Ints]:
        sizes = np.array(cut.sizes, np.int64)
        forward = sizes @ np.array([group.forward for group in self.groups], np.int64)
        backward = sizes @ np.array([group.backward for group in self.groups], np.int64)
        for stage, again in enumerate(cut.again):
            for ways, group in zip(again, self.groups, strict=True):
                backward[stage] += sum(n * extra for n, (extra, _) in zip(ways, group.ways, strict=True))
        return forward, backward

    def _first_times(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield times of stages that are alike but for some that take twice as long: one, or two in a row.

        These two are of one device, or of two devices near each other or far from each other, since these
        wait for each other in turns.
        """
        stages, devices = self._instance.stages, self._instance.devices
        ratio = sum(g.count * g.backward for g in self.groups) / sum(g.count * g.forward for g in self.groups)
        apart = {0, *(sign * d for d in (1, devices // 4, devices // 2) for sign in (-1, 1))}
        pairs = ((a, a + devices + d) for a in range(stages - devices) for d in sorted(apart))
        for some in chain([()], ((s,) for s in range(stages)), pairs):
            ticks = np.full(stages, _FULL)
            ticks[[stage for stage in some if stage < stages]] *= 2
            yield ticks, np.asarray(ticks * ratio, np.int64)

    def _candidate(self, cut: Cut) -> Candidate:
        """Return the candidate of a cut, which recomputes the first layers of each group on a stage."""
        kinds, layers = self.configuration.problem.space.recompute, self.configuration.problem.model.layers
        cuts, recomputed = [0], []
        for sizes, again in zip(cut.sizes, cut.again, strict=True):
            layer, chosen = cuts[-1], list[tuple[int, str]]()
            for size, ways in zip(sizes, again, strict=True):
                names = layers[layer].effects(kinds) if any(ways) else ()
                each = ([name] * count for name, count in zip(names, ways, strict=False))
                chosen += enumerate(chain.from_iterable(each), layer)
                layer += size
            cuts.append(layer)
            recomputed.append(tuple(chosen))
        return self.configuration.candidate(tuple(cuts), tuple(recomputed))


def _nudged(times: tuple[Ints, Ints], random: Random) -> tuple[Ints, Ints]:
    """Return times of stages that are longer by random shares."""
    share = np.array([random.uniform(1.0, _LONGER) for _ in times[0]])
    return np.asarray(times[0] * share, np.int64), np.asarray(times[1] * share, np.int64)


def groups_of(problem: PlanningProblem) -> list[Group]:
    """Return the layers of a problem, equal ones in a row as one group."""
    kinds, each = problem.space.recompute, problem.cluster.bytes_per_parameter
    layers = (replace(layer, name="", kind=None, output=None) for layer in problem.bounding_layers)
    groups = []
    for layer, alike in groupby(layers):
        ways = tuple((effect.extra, effect.saved) for effect in layer.effects(kinds).values())
        numbers = layer.forward, layer.together, layer.backward > 0, layer.activation
        groups.append(Group(len(list(alike)), *numbers, int(layer.parameters * each), ways))
    return groups


def _rooms(configuration: Configuration) -> Iterator[Room]:
    problem, placement = configuration.problem, configuration.placement
    ramps, sizes = ramps_of(problem, placement), problem.cluster.memory_of(placement.devices)
    if ramps is None or sizes is None:
        return
    for device, size in enumerate(sizes):
        flight = dict(zip(placement.stages_on(device), ramps.flight[device].tolist(), strict=True))
        yield Room(size - problem.cluster.reserve, flight)


def longest_path(instance: Instance, order: Order, forward: Ints, backward: Ints) -> tuple[int, StagePath]:
    """Return the length in ticks of a longest path of an order, and the path, for some times of the stages.

    The path is followed back from an operation that ends last, each time to one that ends, or whose message
    arrives, as the next one starts.
    """
    costs = replace(instance.costs, forward=forward.tolist(), backward=backward.tolist(), fused=None)
    schedule = simulate(replace(instance, costs=costs), order)
    inputs, rows, first = arrivals(schedule), schedule.order.operations, set(order.offsets.tolist())
    row, messages = int(np.argmax(schedule.end)), 0
    taken = np.zeros((2, instance.stages), np.int64)
    while True:
        kind, stage, _ = rows[row]
        taken[0 if kind == OpKind.F else 1, stage] += 1
        if row not in first and schedule.end[row - 1] == schedule.start[row]:
            row -= 1
        elif inputs.source[row] != NOTHING:
            messages += int(inputs.arrived[row] - inputs.ended[row])
            row = int(inputs.source[row])
        else:
            return int(schedule.end.max()), StagePath(taken[0], taken[1], messages)
