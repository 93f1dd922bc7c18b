"""The search for a dispatching rule: a few weights from which a whole schedule follows."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import cycle
from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.microbatches import sequence_of
from tightpipe.params.parameters import numbers
from tightpipe.params.search import RuleParams

from ..bounds.formulas import away_bound
from ..bounds.relaxed import relaxed
from ..engine.portfolio import Worker
from ..engine.run import Incumbent
from ..outcome import FINISHED, Outcome, Worked
from ..queues import Queues
from .annealing import Meter, Task, batch_of
from .dispatch_kernel import dispatch
from .lines import DispatchState, Weights, dispatch_state_for, first_weights
from .random_kernel import generator, seeds_of
from .shape_kernel import SHAPE, Shapes, lay_out
from .tune_kernel import TuneNumbers, tune
from .words import EventGraph, Positions

ALIKE = np.zeros((0, 0), np.int64)
"""Stands for the sequences of microbatches that are alike."""
NO_SHAPES = Shapes(np.zeros(0, np.int64), np.zeros((3, 0)))
"""Stands for the shapes of sequences that have none."""
_LAST = 0.9  # share of the phase after which every better schedule is offered at once
_KEPT = 5  # of the random shapes
_FIRST = ("short-at-ends", "cyclic", "longest-first", "shortest-first", "arrival")


class _Rules(NamedTuple):
    """What the runs of all rules of an instance begin with."""

    graph: EventGraph
    state: DispatchState
    weights: Weights  # of the first rule

    def cost(self, sequences: Ints, enough: float = np.inf) -> float:
        """Return the cost of the first rule in ticks; infinite if it is above `enough`."""
        return dispatch(self.graph, self.state, self.weights, sequences, enough)


def _rules_of(queues: Queues, graph: EventGraph, unit: float) -> _Rules:
    hasty = queues.instance.differ and not waits_for_longest(queues.instance)
    return _Rules(graph, dispatch_state_for(queues, graph), first_weights(queues, unit, hasty))


class _Start(NamedTuple):
    """The sequences with which a rule begins, and their shapes."""

    sequences: Ints = ALIKE
    shapes: Shapes = NO_SHAPES


class _Tuner:
    """The annealing of one rule of `dispatch_kernel`, with random numbers and a best rule of its own."""

    def __init__(self, rules: _Rules, seed: int, params: RuleParams, start: _Start) -> None:
        self.graph, self.numbers = rules.graph, numbers(TuneNumbers, params)
        self.state = DispatchState(*(part.copy() for part in rules.state))  # type: ignore[arg-type]
        self.random = generator(seed)
        self.weights = np.repeat(rules.weights[None], 3, axis=0)
        self.sequences = np.repeat(start.sequences[None], 3, axis=0)
        self.shapes = _copied(start.shapes)
        self.cost = self.best = np.inf

    def tune(self, runs: int, warmth: float) -> None:
        """Try `runs` changes of the present rule at the temperature `warmth`, in ticks."""
        self.cost, self.best = tune(
            *(self.graph, self.state, self.random, runs, warmth, self.cost, self.best, self.weights),
            *(self.sequences, self.shapes, self.numbers),
        )

    def leave_shape(self) -> None:
        """Go on from the best rule, with changes of single microbatches in place of changes of the shape."""
        if len(self.shapes.rising) > 0 and self.best < np.inf:
            self.weights[0], self.sequences[0], self.cost = self.weights[1], self.sequences[1], self.best
        self.shapes = NO_SHAPES

    def copy(self, other: _Tuner) -> None:
        """Take over the present rule of another tuner; the best rule stays as it is."""
        self.weights[0], self.sequences[0], self.cost = other.weights[0], other.sequences[0], other.cost
        self.shapes = _copied(other.shapes)

    def words(self) -> Positions:
        """Return the words that the best rule gives."""
        dispatch(self.graph, self.state, self.weights[1], self.sequences[1], np.inf)
        return Positions(self.state.item.copy(), self.state.joined.copy())


def _copied(shapes: Shapes) -> Shapes:
    return Shapes(shapes.rising, shapes.numbers.copy())


class RuleSearch:
    """Anneals several dispatching rules at once, and offers the schedules of the best ones to the incumbent.

    The search for a rule takes a first share of the local search, of which `meter` says how much is done.
    """

    def __init__(self, task: Task, incumbent: Incumbent, meter: Meter, worker: Worker) -> None:
        self._task, self._incumbent, self._meter = task, incumbent, meter
        params = self._params = worker.whole.params.rules
        self._items, self._unit = len(task.graph.arrays.queue), task.unit
        rules = _rules_of(task.queues, task.graph, task.unit)
        starts = cycle(_starts(task.queues.instance, rules, worker))
        # Annealing, which moves one operation at a time, does little with few moves for each, and
        # microbatches that differ leave no periods to fold. Rules then get all, and bad ones end early.
        few = self._moves(worker) < params.alone * self._items
        self._alone = few and task.queues.instance.differ
        self._share = 1.0 if self._alone else params.share
        self._tuners = [_Tuner(rules, seed, params, next(starts)) for seed in self._seeds(worker)]
        batch = batch_of(self._items, worker.whole.params.anneal) // params.run_per_move
        self._runs = max(1, batch // params.starts if self._alone else batch)
        self._best, self._generation, self._waiting = np.inf, 0, self._tuners
        self._ran, self._shaped = 0, True

    def step(self, worker: Worker) -> Outcome:
        """Anneal the next rules for a batch of runs, one on each thread."""
        params, spent, share = self._params, self._meter.spent, self._share
        if spent >= share or worker.over or self._is_behind(spent / share):
            return FINISHED
        if self._shaped and spent >= share * params.shaped:
            self._shaped = False
            for tuner in self._tuners:
                tuner.leave_shape()
        if not self._waiting:
            if spent * params.generations >= share * (self._generation + 1):
                self._generation = int(spent * params.generations / share)
                if self._alone:
                    better = max(worker.whole.threads, len(self._tuners) // 2)
                    self._tuners = sorted(self._tuners, key=lambda tuner: tuner.best)[:better]
                else:
                    _replace_worst(self._tuners, params.replaced)
            self._waiting = self._tuners
        now, self._waiting = self._waiting[: worker.threads], self._waiting[worker.threads :]
        cooled = params.warm * self._unit * params.cooling ** -(spent / share)
        worker.on_each(partial(_Tuner.tune, runs=self._runs, warmth=cooled), now)
        self._ran += self._runs
        # to make and check a schedule takes as long as some dozen runs, so it waits, but not near the end
        if self._ran >= params.offers or spent >= _LAST * share:
            self._offer_best(worker)
        return Worked(self._meter.batch())

    def _offer_best(self, worker: Worker) -> None:
        leader = min(self._tuners, key=lambda tuner: tuner.best)
        late = worker.left <= 0 and leader.best >= self._incumbent.cost  # no time to find its best times
        if leader.best < self._best and not late:
            self._best, self._ran = leader.best, 0
            self._task.offer(self._task.schedule(leader.words()), self._incumbent)

    def _is_behind(self, spent: float) -> bool:
        """Return whether the best rule still costs so much, when a trial has ended, that none will win."""
        trial, enough = self._params.trial, (1 + self._params.behind) * self._incumbent.cost
        return not self._alone and spent >= trial and enough < min(t.best for t in self._tuners) < np.inf

    def _seeds(self, worker: Worker) -> list[int]:
        """Return one seed for each rule to anneal.

        There is at least one rule for each thread. With fewer than `population` threads there are up to
        `population` rules, if each of them still gets about `runs` runs. Whether one annealing of a rule
        ends well is a matter of luck. So several rules are annealed at once, and now and then the worst of
        them are replaced by copies of the best (population annealing).
        """
        params, threads = self._params, worker.whole.threads
        many = int(params.share * self._moves(worker) / params.run_per_move / params.runs)
        many = params.starts if self._alone else many
        return seeds_of(worker.whole.seed, max(threads, min(params.population, many)))

    def _moves(self, worker: Worker) -> float:
        """Return the moves of annealing that the whole search probably has time for."""
        if not self._meter.timed:
            return worker.whole.params.anneal.moves_per_item * self._items
        params = self._params
        return params.pace * worker.whole.threads * worker.expected / self._items * params.run_per_move


@lru_cache(maxsize=8)
def waits_for_longest(instance: Instance) -> bool:
    """Return whether the bound `away` says that a device waits for the longest microbatch."""
    return any(away_bound(one).value > max(works(one)) for one, _ in relaxed(instance))


def _starts(instance: Instance, rules: _Rules, worker: Worker) -> list[_Start]:
    """Return what rules begin with; empty sequences if all microbatches are alike.

    Where a device waits for the longest microbatch, rules begin with sequences in which the rest passes it:
    of several random shapes the best ones by the first rule. Elsewhere, rules with one sequence for all
    visits end up lower. Those that are best by the first rule come first, as a short search has time for few.
    """
    if not instance.differ:
        return [_Start()]
    if not waits_for_longest(instance):
        # loops are compiled for arrays in C order only, and a sequence may be another one backwards
        named = [np.ascontiguousarray(sequence_of(instance, name)[None]) for name in _FIRST]
        return [_Start(one) for one in sorted(named, key=rules.cost)]
    rising, random = sequence_of(instance, "shortest-first"), np.random.default_rng(worker.whole.seed)
    tries: list[tuple[float, int, _Start]] = []  # the cheapest ones so far
    for k in range(worker.whole.params.rules.tries):
        sequences = np.zeros((2 * instance.stages, len(rising)), np.int64)
        shapes = Shapes(rising, np.repeat(random.random((1, SHAPE)), 3, axis=0))
        lay_out(rising, shapes.numbers[0], sequences)
        enough = tries[-1][0] if len(tries) == _KEPT else np.inf
        tries = sorted([*tries, (rules.cost(sequences, enough), k, _Start(sequences, shapes))])[:_KEPT]
    return [start for *_, start in tries]


def _replace_worst(tuners: list[_Tuner], share: float) -> None:
    """Replace the dearest present rules, a share of all, by copies of the cheapest ones."""
    ranked = sorted(tuners, key=lambda tuner: tuner.cost)
    for best, worst in zip(ranked[: int(share * len(ranked))], reversed(ranked), strict=False):
        worst.copy(best)
