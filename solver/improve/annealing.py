"""Annealing of words: the sequences in which devices run the operations of their queues."""

from __future__ import annotations

from functools import partial

import numpy as np

from tightpipe.core.metrics import cost
from tightpipe.core.params.parameters import numbers
from tightpipe.core.params.search import AnnealParams
from tightpipe.core.schedule import Schedule
from tightpipe.kernels.arrays import Ints

from ..engine.incumbent import Incumbent
from ..engine.worker import Worker
from ..outcome import FINISHED, Outcome, Worked
from ..start import in_queue_order
from .anneal_kernel import AnnealNumbers, anneal
from .begins import central_begins
from .event_graph import EventGraph, mirrored
from .generator import generator, seeds_of
from .meter import Meter, batch_of
from .paths_kernel import cost_of, load, load_mirror
from .task import Task
from .words import Positions, positions_of, words_for


class _Walker:
    """One thread's annealing of words, with its own random numbers and its own best words."""

    def __init__(self, graph: EventGraph, seed: int, params: AnnealParams) -> None:
        self.graph, self.numbers = graph, numbers(AnnealNumbers, params)
        self.mirrored = mirrored(graph)
        self.words = words_for(graph)
        self.mirror = words_for(self.mirrored, self.words)
        self.random = generator(seed)
        self.best = 0
        self.found = Positions(np.zeros(0, np.int64), np.zeros(0, np.int64))

    def begin(self, start: Positions, begin: Ints) -> None:
        """Start from words, and from the ticks at which devices begin."""
        load(self.graph, self.words, start.item, start.joined, begin)
        load_mirror(self.graph, self.words, self.mirrored, self.mirror)
        self.found = Positions(start.item.copy(), start.joined.copy())
        self.best = cost_of(self.graph, self.words)

    def walk(self, moves: int, warmth: float) -> None:
        """Try `moves` moves at the temperature `warmth`, in ticks."""
        words = self.graph, self.words, self.mirrored, self.mirror
        self.best = anneal(*words, self.random, moves, warmth, self.best, *self.found, self.numbers)


class Annealing:
    """Anneals words in rounds, each of which starts from the best words so far.

    Parameters
    ----------
    task
        The words to anneal.
    start
        The schedule of these words to start from.
    share
        The share of the remaining search that this annealing may take.
    folded
        Whether the words are those of an instance with fewer microbatches. Otherwise each round starts from
        the schedule of the incumbent where another member has found a cheaper one.
    refines
        Whether neighbourhoods may be searched after this annealing, so that it ends early once it has
        converged.
    incumbent
        Receives each cheaper schedule.
    meter
        Says how much of the local search is done.
    worker
        The worker that runs this member. Every thread anneals on its own.

    Attributes
    ----------
    converged
        Whether the limits leave enough moves to converge, and neighbourhoods may be searched after that.
    """

    def __init__(
        self,
        task: Task,
        start: Schedule,
        share: float,
        incumbent: Incumbent,
        meter: Meter,
        worker: Worker,
        *,
        folded: bool = False,
        refines: bool = False,
    ) -> None:
        self._task, self._start, self._incumbent, self._meter = task, start, incumbent, meter
        self._folded, self._refines = folded, refines
        params = self._params = worker.whole.params.anneal
        seeds = seeds_of(worker.whole.seed, worker.whole.threads)
        self._walkers = [_Walker(task.graph, seed, params) for seed in seeds]
        self._items = len(task.graph.arrays.queue)
        self._batch = batch_of(self._items, params)
        self._best, self._since, self._moves = cost(start), meter.spent, 0
        self._warmth, self._left = params.cold * task.unit, share * (1.0 - meter.spent)
        self._rounds = iter(params.rounds)
        self._begun = self._lasts = 0.0  # the present round, in shares of the search; no round at first
        self._in_round, self.converged = False, False

    def step(self, worker: Worker) -> Outcome:
        """Try a batch of moves on each thread; between two rounds, begin the next one."""
        spent = self._meter.spent
        if self._in_round and spent >= self._begun + self._lasts and not worker.over:
            self._end_round()
        if not self._in_round and not self._begin_round():
            return FINISHED
        if worker.over:
            return FINISHED
        self._walk(worker)
        return Worked(self._meter.batch())

    def _begin_round(self) -> bool:
        """Begin the next round from the best words; return whether there is one with a share left for it."""
        part = next(self._rounds, None)
        if part is None or self._meter.spent >= self._since + self._left:
            return False
        if not self._folded and self._incumbent.cost < self._best:  # another member may have found it
            self._start = in_queue_order(self._incumbent.schedule)
        positions, begin = positions_of(self._task.queues, self._start.order), central_begins(self._start)
        for walker in self._walkers:
            walker.begin(positions, begin)
        self._begun, self._lasts, self._in_round = self._meter.spent, part * self._left, True
        return True

    def _walk(self, worker: Worker) -> None:
        cooled = self._warmth * self._params.cooling ** -((self._meter.spent - self._begun) / self._lasts)
        worker.on_each(
            partial(_Walker.walk, moves=self._batch, warmth=cooled), self._walkers[: worker.threads]
        )
        self._moves += self._batch
        leader = min(self._walkers, key=lambda walker: walker.best)
        if leader.best < self._best:
            self._start = self._task.schedule(leader.found)
            self._best = cost(self._start)
            if self._best + self._task.saved < self._incumbent.cost:
                self._task.offer(self._start, self._incumbent)

    def _end_round(self) -> None:
        """Set the temperature at which the next round begins by the moves that it can probably try."""
        params = self._params
        speed = self._moves / (self._meter.spent - self._since)
        if self._refines and not self.converged and speed * self._left > params.converged * self._items:
            joint = self._task.graph.joint
            share = params.share_if_joint if joint else params.share_if_converged
            self._left, self.converged = share * self._left, True
        expected = speed * params.rounds[-1] * self._left / self._items  # moves per item of the last round
        self._warmth = self._task.unit * min(params.warmest, params.warm * expected**0.5)
        self._in_round = False
