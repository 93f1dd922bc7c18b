"""The search for a dispatching rule: a few weights from which a whole schedule follows."""

from __future__ import annotations

from functools import partial
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
from ..engine.incumbent import Incumbent
from ..engine.portfolio import Worker
from ..outcome import FINISHED, Outcome, Worked
from ..queues import Queues
from .annealing import Meter, Task, batch_of
from .dispatch_kernel import dispatch
from .lines import DispatchState, Weights, dispatch_state_for, first_weights
from .random_kernel import generator, seeds_of
from .tune_kernel import TuneNumbers, tune
from .words import EventGraph, Positions

ALIKE = np.zeros((0, 0), np.int64)
"""Stands for the sequences of microbatches that are alike."""
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
    return _Rules(graph, dispatch_state_for(queues, graph), first_weights(queues, unit))


class _Tuner:
    """The annealing of one dispatching rule, with random numbers and a best rule of its own.

    `dispatch_kernel` says what a dispatching rule is. A tuner keeps the weights of its present rule and
    of its best rule, and the costs of both in ticks.
    """

    def __init__(self, rules: _Rules, seed: int, params: RuleParams, sequences: Ints = ALIKE) -> None:
        self.graph, self.numbers = rules.graph, numbers(TuneNumbers, params)
        self.state = DispatchState(*(part.copy() for part in rules.state))  # type: ignore[arg-type]
        self.random = generator(seed)
        self.weights = np.repeat(rules.weights[None], 3, axis=0)
        self.sequences = np.repeat(sequences[None], 3, axis=0)
        self.cost = self.best = np.inf

    def tune(self, runs: int, warmth: float) -> None:
        """Try `runs` changes of the present rule at the temperature `warmth`, in ticks."""
        self.cost, self.best = tune(
            *(self.graph, self.state, self.random, runs, warmth, self.cost, self.best, self.weights),
            *(self.sequences, self.numbers),
        )

    def copy(self, other: _Tuner) -> None:
        """Take over the present rule of another tuner; the best rule stays as it is."""
        self.weights[0], self.sequences[0], self.cost = other.weights[0], other.sequences[0], other.cost

    def words(self) -> Positions:
        """Return the words that the best rule gives."""
        dispatch(self.graph, self.state, self.weights[1], self.sequences[1], np.inf)
        return Positions(self.state.item.copy(), self.state.joined.copy())


class RuleSearch:
    """Anneals several dispatching rules at once, and offers the schedules of the best ones to the incumbent.

    The search for a rule takes a first share of the local search, of which `meter` says how much is done.
    """

    def __init__(self, task: Task, incumbent: Incumbent, meter: Meter, worker: Worker) -> None:
        self._task, self._incumbent, self._meter = task, incumbent, meter
        params = self._params = worker.whole.params.rules
        self._items, self._unit = len(task.graph.arrays.queue), task.unit
        rules = _rules_of(task.queues, task.graph, task.unit)
        starts = cycle(_sequences(task.queues.instance, rules, worker))
        # Annealing, which moves one operation at a time, does little with few moves for each, and
        # microbatches that differ leave no periods to fold. Rules then get all, and bad ones end early.
        few = self._moves(worker) < params.alone * self._items
        self._alone = few and task.queues.instance.differ
        self._share = 1.0 if self._alone else params.share
        self._tuners = [_Tuner(rules, seed, params, next(starts)) for seed in self._seeds(worker)]
        batch = batch_of(self._items, worker.whole.params.anneal) // params.run_per_move
        self._runs = max(1, batch // params.starts if self._alone else batch)
        self._best, self._generation, self._waiting = np.inf, 0, self._tuners

    def step(self, worker: Worker) -> Outcome:
        """Anneal the next rules for a batch of runs, one on each thread."""
        params, spent, share = self._params, self._meter.spent, self._share
        if spent >= share or worker.over:
            return FINISHED
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
        leader = min(now, key=lambda tuner: tuner.best)
        if leader.best < self._best and not self._is_late_for(leader.best, worker):
            self._best = leader.best
            self._task.offer(self._task.schedule(leader.words()), self._incumbent)
        return Worked(self._meter.batch())

    def _is_late_for(self, found: float, worker: Worker) -> bool:
        """Return whether time is up and a rule, not at its best times, costs no less than the best one."""
        return worker.left <= 0 and found >= self._incumbent.cost

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


def _sequences(instance: Instance, rules: _Rules, worker: Worker) -> list[Ints]:
    """Return the sequences from which rules begin; empty ones if all microbatches are alike.

    Where the bound `away` says that a device waits for the longest microbatch, there is one for each visit,
    and half of the rules let the rest pass it: of several random ones the best ones by the first rule.
    Elsewhere, rules with one sequence for all visits end up lower. Those that are best by the first rule come
    first, as a short search has time for few.
    """
    if not instance.differ:
        return [ALIKE]
    named = [sequence_of(instance, name)[None] for name in _FIRST]
    if any(away_bound(one).value > max(works(one)) for one, _ in relaxed(instance)):
        named = [np.repeat(one, 2 * instance.stages, axis=0) for one in named]
        rising, random = sequence_of(instance, "shortest-first"), np.random.default_rng(worker.whole.seed)
        tries: list[tuple[float, int, Ints]] = []  # the cheapest ones so far, as many as there are names
        for k in range(worker.whole.params.rules.tries):
            sequences = _passing(rising, 2 * instance.stages, random)
            enough = tries[-1][0] if len(tries) == len(named) else np.inf
            tries = sorted([*tries, (rules.cost(sequences, enough), k, sequences)])[: len(named)]
        named += [sequences for *_, sequences in tries]
    return sorted(named, key=rules.cost)


def _passing(rising: Ints, visits: int, random: np.random.Generator) -> Ints:
    """Return sequences in which others pass the longest microbatch at one visit on its way up and one down.

    While the longest one is away, its device has little to do: memory holds only some others that began
    before it, or begin after it. Those that pass it as a whole need no memory at either end. So long ones
    begin before it, behind a few short ones, and the rest pass; a few short ones may be last.
    `rising` has the microbatches by rising work.
    """
    *others, longest = rising
    n, up, down = (
        len(others),
        random.integers(max(1, visits // 8), max(2, visits // 2)),
        random.integers(visits // 2, visits),
    )
    long = n - int(n * random.uniform(1 / 4, 1 / 2))
    short, last = (min(long, int(n * random.uniform(0, most))) for most in (1 / 8, 1 / 6))
    passing = others[short:long]
    early = others[:short] + others[long:]
    late, passing = passing[:last], passing[last:]
    first, half = len(early), int(len(passing) * random.uniform(0.2, 0.8))
    places = [first, first + half, first + len(passing)]
    found = np.array([np.insert(early + passing + late[::-1], k, longest) for k in places])
    return np.repeat(found, [up, down - up, visits - down], axis=0)


def _replace_worst(tuners: list[_Tuner], share: float) -> None:
    """Replace the dearest present rules, a share of all, by copies of the cheapest ones."""
    ranked = sorted(tuners, key=lambda tuner: tuner.cost)
    for best, worst in zip(ranked[: int(share * len(ranked))], reversed(ranked), strict=False):
        worst.copy(best)
