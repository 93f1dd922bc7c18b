"""An exact model of where layers are cut into stages, if a step takes as long as the longest of some paths.

A path through a schedule with a fixed order is a sum of times of stages, and these are sums over the layers
of a stage. So each path is a linear constraint on how many layers each stage has of each group of equal ones,
and a cut whose paths are all short enough is a solution of these constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from tightpipe.kernels.arrays import Ints
from tightpipe.params.budget import Budget

from .race import solver_on_one_thread, stop_all


@dataclass(frozen=True, slots=True)
class Group:
    """Equal layers in a row."""

    count: int  #: how many they are, at least 1
    forward: int  #: ticks of F of one of them; the next one likewise of its backward
    backward: int
    passes: bool = True  #: whether it has a B, which passes the gradient on
    held: int = 0  #: bytes that one of them takes for each microbatch in flight
    static: int = 0  #: bytes that one of them takes all the time
    #: ways to recompute one: ticks by which its backward gets longer, and bytes of `held` that it saves
    ways: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a device, and how many microbatches are in flight at each of its stages."""

    size: int  #: bytes
    flight: dict[int, int] = field(hash=False)  #: by stage


@dataclass(frozen=True, slots=True)
class StagePath:
    """A path: how often it takes F and the backward of each stage, and how long its messages take."""

    forwards: Ints  #: shape (stages,)
    backwards: Ints  #: shape (stages,)
    messages: int  #: ticks


@dataclass(frozen=True, slots=True)
class Cut:
    """How many layers each stage takes of each group, and how many of these it recomputes in each way."""

    sizes: tuple[tuple[int, ...], ...]
    again: tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class Cuts:
    """What a search among all cuts has found: a cut within the target, that there is none, or neither."""

    found: Cut | None
    none: bool = False  #: whether it is proven that no cut is within the target


class CutModel:
    """All cuts of layers (`groups`, in sequence) into stages, of which some paths are known.

    Each stage gets a layer, some F and, but for stage 0, some B. `rooms` is the memory of each device, if it
    has a limit.
    """

    def __init__(self, groups: Sequence[Group], stages: int, rooms: Iterable[Room] = ()) -> None:
        self.groups, self.stages = groups, stages
        self._model = cp_model.CpModel()
        self._size = [[self._variable(g.count) for g in groups] for _ in range(stages)]
        self._again = [[[self._variable(g.count) for _ in g.ways] for g in groups] for _ in range(stages)]
        self._longest = self._model.new_int_var(0, 2**60, "")
        self.add_constraints(rooms)

    def _variable(self, most: int) -> cp_model.IntVar:
        return self._model.new_int_var(0, most, "")

    def add_constraints(self, rooms: Iterable[Room]) -> None:
        """Add each family of constraints."""
        self.in_sequence()
        self.possible()
        self.recomputed()
        for room in rooms:
            self.memory(room)

    def in_sequence(self) -> None:
        """Let a stage take layers only if it or stages before it take all layers of the group before."""
        upto = [[self._variable(g.count) for g in self.groups] for _ in range(self.stages)]
        for k, group in enumerate(self.groups):
            for stage, size in enumerate(self._size):
                before = upto[stage - 1][k] if stage else 0
                self._model.add(upto[stage][k] == before + size[k])
            self._model.add(upto[-1][k] == group.count)
        for passed in upto:
            for k, group in enumerate(self.groups[:-1]):
                is_done = self._model.new_bool_var("")
                self._model.add(passed[k] == group.count).only_enforce_if(is_done)
                self._model.add(passed[k + 1] == 0).only_enforce_if(~is_done)

    def possible(self) -> None:
        """Give each stage an F, and each but the first one a B."""
        for stage, size in enumerate(self._size):
            pairs = list(zip(size, self.groups, strict=True))
            self._model.add(sum(n for n, group in pairs if group.forward) >= 1)
            if stage:
                self._model.add(sum(n for n, group in pairs if group.passes) >= 1)

    def recomputed(self) -> None:
        """Recompute a layer in at most one way."""
        for size, again in zip(self._size, self._again, strict=True):
            for n, ways in zip(size, again, strict=True):
                if ways:
                    self._model.add(sum(ways) <= n)

    def memory(self, room: Room) -> None:
        """Make what is in flight on a device fit, without what is transient."""
        terms: list[cp_model.LinearExprT] = []
        for stage, flight in room.flight.items():
            for k, group in enumerate(self.groups):
                terms.append((flight * group.held + group.static) * self._size[stage][k])
                for again, (_, saved) in zip(self._again[stage][k], group.ways, strict=True):
                    terms.append(-flight * saved * again)
        self._model.add(sum(terms) <= room.size)

    def add_path(self, path: StagePath) -> None:
        """Let the path be no longer than the target."""
        terms: list[cp_model.LinearExprT] = [path.messages]
        for stage in range(self.stages):
            forwards, backwards = int(path.forwards[stage]), int(path.backwards[stage])
            for k, group in enumerate(self.groups):
                each = forwards * group.forward + backwards * group.backward
                terms.append(each * self._size[stage][k])
                for again, (extra, _) in zip(self._again[stage][k], group.ways, strict=True):
                    terms.append(backwards * extra * again)
        self._model.add(sum(terms) <= self._longest)

    def within(self, target: int, budget: Budget) -> Cuts:
        """Look on one thread for a cut whose known paths take at most `target` ticks; Ctrl-C ends it."""
        model, solver = self._model.clone(), solver_on_one_thread(budget, budget.effort)
        model.add(self._longest <= target)
        with ThreadPoolExecutor(1) as pool:  # so that this thread can be interrupted
            run = pool.submit(solver.solve, model)
            try:
                status = run.result()
            finally:
                stop_all({run: solver.stop_search})
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Cuts(self._cut(solver))
        return Cuts(None, status == cp_model.INFEASIBLE)

    def _cut(self, solver: cp_model.CpSolver) -> Cut:
        sizes = tuple(tuple(map(solver.value, size)) for size in self._size)
        again = tuple(tuple(tuple(map(solver.value, ways)) for ways in stage) for stage in self._again)
        return Cut(sizes, again)
