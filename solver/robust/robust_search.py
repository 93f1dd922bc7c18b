"""The search for a *robust* order, whose cost under noise has a small mean or 95th percentile.

Several threads anneal. Each starts every round from the best order of all threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial

import numpy as np

from tightpipe.core.budget import Budget
from tightpipe.core.graph_arrays import deltas_of
from tightpipe.core.interruption import reason_of
from tightpipe.core.params.parameters import numbers
from tightpipe.core.schedule import Order, Schedule
from tightpipe.core.simulate import simulate
from tightpipe.kernels.arrays import Floats
from tightpipe.noise.distribution import QUANTILE
from tightpipe.noise.order_run import OrderRun, flat, sample_state
from tightpipe.noise.times import BLOCK, Times

from ..improve.anneal_kernel import AnnealNumbers
from ..improve.draws_kernel import GeneratorState
from ..improve.event_graph import event_graph_of
from ..improve.generator import generator
from ..start import in_queue_order
from .robust_kernel import Sample, Walk, value_of, walk_robustly


class Measure(StrEnum):
    """The measure of the costs in all samples that a robust search minimises."""

    MEAN = "mean"  #: the mean
    P95 = "p95"  #: the 95th percentile

    def weights(self, samples: int) -> Floats:
        """Return the weights with which `samples` costs, sorted upwards, add up to the measure."""
        if self is Measure.MEAN:
            return np.full(samples, 1.0 / samples)
        place = QUANTILE * (samples - 1)  # between two costs by linear interpolation, as in `Distribution`
        weights = np.zeros(samples)
        weights[int(place)] = 1.0 - place % 1.0
        weights[min(int(place) + 1, samples - 1)] += place % 1.0
        return weights


def robust_search(
    start: Schedule, blocks: Sequence[Times], samples: int, measure: Measure, budget: Budget
) -> tuple[Schedule, str]:
    """Search for the order and device start times that minimise a measure of the cost over the given samples.

    Parameters
    ----------
    start
        A valid schedule to start from. `improve` must model its instance: no operations overlap.
    blocks
        The random times of all samples, `BLOCK` samples in each block.
    samples
        Number of samples that count, from the first one on: at most `BLOCK` times the number of blocks.
    measure
        The measure to minimize: the mean or the 95th percentile.
    budget
        The limits. Each thread anneals on its own, and all start each round from the best order. Without a
        deadline the number of moves depends only on the size of the instance and the number of samples, and
        with one thread every run gives the same result.

    Returns
    -------
    schedule
        The best order found, with the start times that it has without noise.
    reason
        How a signal ended the search early: "interrupted" or "terminated". If no signal did, the empty
        string.
    """
    search = _Search(in_queue_order(start), blocks, measure.weights(samples), budget)
    reason = ""
    try:
        search.run()
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    return search.schedule(), reason


class _Search:
    """One search, with the walk of each thread and the samples that they share."""

    def __init__(self, start: Schedule, blocks: Sequence[Times], weights: Floats, budget: Budget) -> None:
        self.start, self.budget = start, budget
        self.run_of_start = OrderRun(start)
        self.graph = self.run_of_start.graph
        self.events = event_graph_of(start.instance)
        self.sample = _sample(self.run_of_start, blocks, weights)
        self.walkers = [self._walker(seed) for seed in range(budget.threads)]
        self.unit = float(self.graph.planned.mean())
        self.moves = numbers(AnnealNumbers, budget.params.anneal)

    def _walker(self, number: int) -> _Walker:
        return _Walker(self, generator(self.budget.seed * 1024 + number))

    def run(self) -> None:
        """Anneal in rounds until the deadline, or without one until a fixed number of moves is done."""
        rows = len(self.graph.home)
        params = self.budget.params.robust
        moves = max(1, params.work_per_batch // (rows * len(self.sample.durations) * BLOCK))
        batches = max(1, params.moves_per_operation * rows // moves // params.rounds)
        with ThreadPoolExecutor(self.budget.threads) as pool:
            for number in range(params.rounds):
                part = (
                    self.budget.part(1.0 / (params.rounds - number))
                    if not self.budget.endless
                    else self.budget
                )
                self._round(pool, part, moves, batches)

    def _round(self, pool: ThreadPoolExecutor, budget: Budget, moves: int, batches: int) -> None:
        best, params = min(self.walkers, key=lambda walker: walker.best), budget.params.robust
        for walker in self.walkers:
            walker.begin_at(best)
        length, done = budget.left, 0
        while budget.left > 0 and (not budget.endless or done < batches):
            spent = done / batches if budget.endless else 1.0 - budget.left / length
            warmth = params.warm * self.unit * params.cooling**-spent
            list(pool.map(partial(_Walker.walk_on, moves=moves, warmth=warmth), self.walkers))
            done += 1

    def schedule(self) -> Schedule:
        """Return the best order with its start times without noise."""
        best, order = min(self.walkers, key=lambda walker: walker.best), self.start.order
        found = Order(order.operations[best.walk.best_word], order.offsets)
        return simulate(self.start.instance, found, best.walk.best_release)


class _Walker:
    """One thread's annealing, with random numbers and a best order of its own."""

    def __init__(self, search: _Search, random: GeneratorState) -> None:
        run, graph = search.run_of_start, search.graph
        self.search, self.random = search, random
        delta = deltas_of(search.start.instance, search.start.order)
        costs = np.empty(len(search.sample.durations) * BLOCK)
        words, releases = ([values.copy() for _ in range(3)] for values in (run.word, run.release))
        self.walk = Walk(
            *(words[0], words[1], releases[0], words[2], releases[1]),
            *(delta, np.zeros(1), costs, sample_state(graph)),
        )
        self.value = self.best = self.judge()

    def begin_at(self, other: _Walker) -> None:
        """Make the best order of `other` this walker's order and its best one."""
        word, release = other.walk.best_word.copy(), other.walk.best_release.copy()
        self.walk.word[:], self.walk.best_word[:] = word, word
        self.walk.release[:], self.walk.best_release[:] = release, release
        self.walk.place[word] = np.arange(len(word))
        self.value = self.best = self.judge()

    def judge(self) -> float:
        """Return the measure of the order, and store its mean cost in the first block of samples."""
        search = self.search
        value, self.walk.first[0] = value_of(
            search.graph, search.sample, search.events.spans, self.walk, np.inf
        )
        return float(value)

    def walk_on(self, moves: int, warmth: float) -> None:
        """Try `moves` moves at the temperature `warmth`, in ticks."""
        search = self.search
        self.value, self.best = walk_robustly(
            *(search.graph, search.events, search.sample, self.walk, self.random),
            *(moves, warmth, self.value, self.best, search.moves),
        )


def _sample(run: OrderRun, blocks: Sequence[Times], weights: Floats) -> Sample:
    begin, span = run.begin[:, None], run.span[:, None]
    return Sample(
        durations=np.stack([flat(times.duration) for times in blocks]),
        lags=np.stack([flat(times.lag) for times in blocks]),
        moment=np.stack([begin + times.moment * span for times in blocks]),
        stall=np.stack([times.stall for times in blocks]),
        weights=weights,
    )
