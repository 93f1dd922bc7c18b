"""Annealing of words: the sequences in which devices run the operations of their queues.

What is annealed is a `Task`: the words of the instance, or of an instance with fewer microbatches whose
schedule is unfolded afterwards. In each round every thread starts from the best words so far, with random
numbers of its own.

The ticks at which devices begin are chosen such that annealing has room to move. Under `device_span` a device
may begin later than it could, and usually many choices of these times give the words their least cost.
Annealing keeps the chosen times for many moves. If every device began as early as possible, most devices
would run just in time for another device. Then a small delay on one device would raise the cost of another
one. Times in the middle of the possible range leave slack on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import numpy as np

from tightpipe.base.errors import NoScheduleError
from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.schedule import Schedule
from tightpipe.model.simulate import begin_distances, retime
from tightpipe.params.parameters import numbers
from tightpipe.params.search import AnnealParams

from ..copies import copied_in
from ..engine.portfolio import Worker
from ..engine.run import Incumbent, checked_start, in_queue_order
from ..outcome import FINISHED, Outcome, Worked
from ..queues import Queues, queues_of
from .anneal_kernel import AnnealNumbers, anneal
from .fold import Fold
from .paths_kernel import cost_of, load, load_mirror
from .random_kernel import generator, seeds_of
from .words import (
    EventGraph,
    Positions,
    event_graph_of,
    mirrored,
    order_of_positions,
    positions_of,
    with_fixed,
    words_for,
)


def batch_of(items: int, params: AnnealParams) -> int:
    """Return the number of moves of a batch for words of so many items."""
    return max(params.least_batch, params.work_per_batch // items)


@dataclass
class Meter:
    """Measures how much of the search is done: by time or effort if either is limited, else by batches."""

    worker: Worker  #: runs the search, and knows how long it has run and may run
    planned: float  #: number of batches of a search without a limit
    batches: int = 0  #: number of batches that are done
    begun: float = field(init=False)  #: seconds that the worker had spent on other members before

    def __post_init__(self) -> None:
        self.begun = self.worker.seconds

    @property
    def timed(self) -> bool:
        """Whether the search is measured by time or effort."""
        return self.worker.whole.limited

    @property
    def spent(self) -> float:
        """The share of the search that is done, 0 to 1, or infinity when time is up."""
        if not self.timed:
            return self.batches / self.planned
        left, spent = self.worker.expected, self.worker.seconds - self.begun
        return inf if left == 0 else spent / (spent + left)

    def batch(self) -> float:
        """Count a batch, and return roughly the seconds that it takes."""
        self.batches += 1
        return self.worker.whole.params.anneal.seconds_per_batch


@dataclass(frozen=True)
class Task:
    """The words to anneal: those of the instance, or of an instance with fewer microbatches."""

    queues: Queues
    graph: EventGraph
    saved: int  #: ticks that unfolding should add to the cost of a schedule; 0 for all microbatches
    whole: Callable[[Schedule], Schedule | None]  #: makes one of the whole instance, if it can

    @property
    def unit(self) -> float:
        """The mean duration of an operation in ticks, by which temperatures are measured."""
        arrays = self.graph.arrays
        return float(arrays.queues["duration"][arrays.queue].mean())

    def schedule(self, found: Positions) -> Schedule:
        """Return the cheapest schedule that runs these words."""
        return retime(self.queues.instance, order_of_positions(self.queues, self.graph, found))

    def offer(self, found: Schedule, incumbent: Incumbent) -> None:
        """Offer a schedule of the words to the incumbent, unfolded, if it can be unfolded."""
        incumbent.offer(self.whole(found))


def whole_task(instance: Instance) -> Task:
    queues = queues_of(instance)
    return Task(queues, event_graph_of(queues.instance), 0, lambda found: found)


def task_without_copies(instance: Instance) -> Task:
    """Return the words of the instance in which all stays on its device, as dispatching rules know them."""
    task = whole_task(replace(instance, offload=None))
    return replace(task, whole=lambda found: Schedule(instance, found.order, found.start, found.end))


def queued(schedule: Schedule) -> Schedule | None:
    """Return a schedule with first-in-first-out queues that costs no more, if its copies allow such a one.

    Otherwise return the schedule that runs one microbatch after another; None if that is not valid either.
    """
    found = in_queue_order(schedule)
    if copied_in(found.instance, found.order) is not None:
        return found
    with suppress(NoScheduleError):
        return checked_start(found.instance, None)
    return None


def folded_task(folded: Fold) -> Task:
    queues = queues_of(folded.schedule.instance)
    graph = with_fixed(event_graph_of(queues.instance), folded.first, folded.end)
    return Task(queues, graph, folded.saved, lambda found: folded.unfold(found.order))


def central_begins(schedule: Schedule) -> Ints:
    """Return the tick before which each device must not begin, at least 0, shape (p,).

    With these times the words of the schedule have their least cost. For `device_span` the result is the
    rounded mean of 2p choices: for each device in turn, all other devices begin as early, or as late,
    relative to this device as the least cost allows. For `makespan` and `step` all times are 0.
    """
    if schedule.instance.whole:
        return np.zeros(schedule.instance.devices, np.int64)
    least = _closed(begin_distances(schedule.instance, schedule.order))
    after = least - least[:, :1]  # row d: all begin as early as possible relative to d; device 0 at 0
    before = least[:1] - least  # column e: as late as possible relative to e; device 0 at 0
    middle = (after.mean(axis=0) + before.mean(axis=1)) / 2
    begins = np.floor(middle - middle.min()).astype(np.int64)
    # Rounding may leave a difference one tick too small, so devices begin later where that is needed.
    return np.asarray((begins[:, None] + least).max(axis=0))


def _closed(least: Ints) -> Ints:
    """Return the least differences between devices that chains of the given ones imply (Floyd 1962)."""
    closed = least.copy()
    for k in range(len(closed)):
        closed = np.maximum(closed, closed[:, k, None] + closed[k])
    return closed


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
    """Anneals words in rounds, each of which starts from the best words so far, and each thread on its own.

    It starts from a schedule of the words, and may take a share of the remaining search. Unless the words are
    those of an instance with fewer microbatches (`folded`), each round starts from the schedule of the
    incumbent where another member has found a cheaper one. If it `refines`, neighbourhoods may be searched
    after it, so that it ends early once it has `converged`, for which the limits have to leave enough moves.
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
        self._calm, self._beaten = 1.0, inf  # factor of the temperatures; cost at the end of the last round
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
            other = queued(self._incumbent.schedule) or self._start
            self._start = min(other, self._start, key=cost)
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
        if self._best == self._beaten:  # a warm round that leads nowhere would do so again at its temperature
            self._calm *= params.calmer
        self._beaten = self._best
        self._warmth = self._calm * self._task.unit * min(params.warmest, params.warm * expected**0.5)
        self._in_round = False
