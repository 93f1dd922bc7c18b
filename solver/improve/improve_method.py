"""The method ``improve``: a local search that always has a schedule, and finds better ones with more time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.params.parameters import numbers
from tightpipe.core.params.search import AnnealParams, RuleParams
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Result
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule
from tightpipe.core.validate import validate
from tightpipe.kernels.arrays import Ints

from ..incumbent import Incumbent
from ..modelled import Rule, is_modelled, rules_of
from ..queues import Queues, queues_of
from ..run_search import run_search
from ..start import in_queue_order
from ..two_sides import Side, Turns, alone
from .anneal_kernel import AnnealNumbers, anneal
from .begins import central_begins
from .dispatch_kernel import dispatch, first_weights
from .dispatch_state import dispatch_state_for
from .event_graph import EventGraph, event_graph_of, mirrored, with_fixed
from .fold import Fold, fold
from .generator import generator
from .neighbourhood import search_neighbourhoods
from .paths_kernel import cost_of, load, load_mirror
from .tune_kernel import TuneNumbers, tune
from .words import Positions, order_of_positions, positions_of, words_for


class _Tuner:
    """The annealing of one dispatching rule, with random numbers and a best rule of its own.

    `dispatch_kernel` says what a dispatching rule is. A tuner keeps the weights of its present rule and
    of its best rule, and the costs of both in ticks.
    """

    def __init__(self, queues: Queues, graph: EventGraph, unit: float, seed: int, params: RuleParams) -> None:
        self.graph, self.numbers = graph, numbers(TuneNumbers, params)
        self.state = dispatch_state_for(queues, graph)
        self.random = generator(seed)
        self.weights = np.repeat(first_weights(queues, unit)[None], 3, axis=0)
        self.cost = self.best = np.inf

    def tune(self, runs: int, warmth: float) -> None:
        """Try `runs` changes of the present rule at the temperature `warmth`, in ticks."""
        self.cost, self.best = tune(
            *(self.graph, self.state, self.random, runs, warmth, self.cost, self.best, self.weights),
            self.numbers,
        )

    def follow(self, other: _Tuner) -> None:
        """Take over the present rule of another tuner; the best rule stays as it is."""
        self.weights[0], self.cost = other.weights[0], other.cost

    def words(self) -> Positions:
        """Return the words that the best rule gives."""
        dispatch(self.graph, self.state, self.weights[1], np.inf)
        return Positions(self.state.item.copy(), np.zeros_like(self.state.item))


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


def improve(
    instance: Instance,
    budget: Budget,
    start: Schedule | None = None,
    lower_bound: int | None = None,
    progress: Progress = ignore,
) -> Result:
    """Search for a cheaper schedule by local search.

    First comes a search for a dispatching rule: a few weights from which a whole schedule follows
    (`dispatch_kernel`). The weights of several rules are annealed at once, and bad rules give way to copies
    of good ones. A rule fuses no backwards, so this search is left out where fused backwards save time. Then
    the sequences of operations are annealed, from the better of the start and the schedule of the best rule.
    A move takes an operation to another place of its device's sequence, or lets a device begin at another
    time. The cost after each move is computed, not estimated. Where the schedule repeats itself, warm-up and
    cool-down are annealed first, with fewer microbatches (`fold`). Where annealing converges, CP-SAT searches
    large neighbourhoods of the best schedule for the rest of the time.

    Parameters
    ----------
    instance
        The problem.
    budget
        The limits. Every thread anneals on its own, and all of them start each round from the best words.
        Without a deadline the number of moves is fixed by the effort or, if that is not limited either, by
        the size of the instance. With one thread the result is then the same in every run.
    start
        A valid schedule; None to start from the schedule that runs one microbatch after another.
    lower_bound
        A proven lower bound of the cost in ticks, used if it is larger than the bounds of `bounds.formulas`.
        The search ends when the cost reaches the bound.
    progress
        Called with each new incumbent or bound.

    Returns
    -------
    Result
        Its schedule costs no more than the start, and its status is `optimal` if the cost equals the bound.

    Raises
    ------
    InputError
        If the start is not a valid schedule of the instance.
    """
    return run_search(
        *("improve", instance, budget, start, lower_bound, progress),
        lambda incumbent: alone(budget, incumbent, partial(improve_turns, instance, incumbent)),
        energetic=True,
    )


def improve_turns(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    """Search for cheaper schedules, as `improve` does, in turns (`Turns`).

    A turn takes some hundredths of a second, or about a second while CP-SAT searches neighbourhoods.

    Parameters
    ----------
    instance
        The problem.
    incumbent
        Has the schedule to improve, and receives each cheaper one.
    side
        The side of the solve that takes these turns, with the limits of each turn. Every thread anneals on
        its own.
    """
    search = _Search(instance, incumbent, side)
    with ThreadPoolExecutor(side.whole.threads) as pool:
        if Rule.FUSED not in rules_of(instance):  # the rules know no fused backwards
            yield from search.find_rule(pool)
        if side.over:
            return ""
        params = side.whole.params.fold
        folded = None if search.task.graph.joint else fold(in_queue_order(incumbent.schedule), params)
        if folded is not None and not side.over:
            yield from search.anneal(pool, _folded_task(folded), folded.schedule, params.share)
        if side.over:
            return ""
        converged = yield from search.anneal(pool, search.task, in_queue_order(incumbent.schedule), 1.0)
    if converged:
        return (yield from search_neighbourhoods(instance, incumbent, side))
    return ""


@dataclass(frozen=True)
class _Task:
    """The words to anneal: those of the instance, or of an instance with fewer microbatches.

    Parameters
    ----------
    queues, graph
        The queues and the event graph of the words.
    saved
        Ticks that unfolding is expected to add to the cost of a schedule of the words; 0 if the words have
        all microbatches.
    whole
        Turns a schedule of the words into one of the whole instance; returns None if it cannot be unfolded.
    """

    queues: Queues
    graph: EventGraph
    saved: int
    whole: Callable[[Schedule], Schedule | None]

    def schedule(self, found: Positions) -> Schedule:
        """Return the cheapest schedule that runs these words."""
        return retime(self.queues.instance, order_of_positions(self.queues, self.graph, found))

    def offer(self, found: Schedule, incumbent: Incumbent) -> None:
        """Offer a schedule of the words to the incumbent, unfolded and validated, if it can be unfolded."""
        schedule = self.whole(found)
        if schedule is None:
            return
        violations = validate(schedule.instance, schedule)
        if violations:
            raise AssertionError(f"the search found an invalid schedule, please report: {violations[0]}")
        incumbent.offer(schedule)


def _task(instance: Instance) -> _Task:
    queues = queues_of(instance)
    return _Task(queues, event_graph_of(queues.instance), 0, lambda found: found)


def _folded_task(folded: Fold) -> _Task:
    queues = queues_of(folded.schedule.instance)
    graph = with_fixed(event_graph_of(queues.instance), folded.first, folded.end)
    return _Task(queues, graph, folded.saved, lambda found: folded.unfold(found.order))


class _Search:
    """One run of `improve`, with the data that its phases share."""

    def __init__(self, instance: Instance, incumbent: Incumbent, side: Side) -> None:
        self.incumbent, self.side = incumbent, side
        self.rules, self.params = side.whole.params.rules, side.whole.params.anneal
        self.seeds = _seeds(side.whole.seed, side.whole.threads)
        self.task = _task(instance)
        items = len(self.task.graph.arrays.queue)
        self.refines = is_modelled(instance) and side.whole.limited  # whether neighbourhoods may follow
        self.unit = float(self.task.graph.arrays.queues["duration"][self.task.graph.arrays.queue].mean())
        self.meter = _Meter(side, self.params.moves_per_item * items / self._batch(items))

    def find_rule(self, pool: ThreadPoolExecutor) -> Turns:
        """Search for a dispatching rule, and offer the schedules of the best rules to the incumbent."""
        task, params = self.task, self.rules
        known = task.queues, task.graph, self.unit
        tuners = [_Tuner(*known, seed, params) for seed in self._seeds_of_rules()]
        runs, best = max(1, self._batch(len(task.graph.arrays.queue)) // params.run_per_move), np.inf
        generation, waiting = 0, tuners
        while (spent := self.meter.spent) < params.share and not self.side.over:
            if not waiting:
                waiting = tuners
                if spent * params.generations >= params.share * (generation + 1):
                    generation = int(spent * params.generations / params.share)
                    _replace_worst(tuners, params.replaced)
            now, waiting = waiting[: self.side.threads], waiting[self.side.threads :]
            cooled = params.warm * self.unit * params.cooling ** -(spent / params.share)
            list(pool.map(partial(_Tuner.tune, runs=runs, warmth=cooled), now))
            leader = min(now, key=lambda tuner: tuner.best)
            if leader.best < best and not self._is_late_for(leader.best):
                best = leader.best
                task.offer(task.schedule(leader.words()), self.incumbent)
            yield self.meter.batch()
        return ""

    def _is_late_for(self, found: float) -> bool:
        """Return whether time is up, and a rule's cost in ticks is no lower than that of the best schedule.

        The start times that a rule gives are not the best ones, so a rule can be worth a look all the same.
        """
        return self.side.rest <= 0 and found >= cost(self.incumbent.schedule)

    def _seeds_of_rules(self) -> list[int]:
        """Return one seed for each rule to anneal.

        There is at least one rule for each thread. With fewer than `population` threads there are up to
        `population` rules, if each of them still gets about `runs` runs. Whether one annealing of a rule
        ends well is a matter of luck. So several rules are annealed at once, and now and then the worst of
        them are replaced by copies of the best (population annealing).
        """
        params = self.rules
        items, threads = len(self.task.graph.arrays.queue), self.side.whole.threads
        moves = params.pace * threads * self.side.left / items * params.run_per_move
        if not self.meter.timed:
            moves = self.params.moves_per_item * items
        many = int(params.share * moves / params.run_per_move / params.runs)
        return _seeds(self.side.whole.seed, max(threads, min(params.population, many)))

    def anneal(
        self, pool: ThreadPoolExecutor, task: _Task, start: Schedule, share: float
    ) -> Generator[float, None, bool]:
        """Anneal words in rounds, and return whether it has converged and CP-SAT can go on from there.

        A word is the sequence in which a device runs the operations of its queues. If neither time nor effort
        is limited, the number of moves is fixed, and the result is False. The generator yields the nominal
        seconds of each turn, as in `Turns`.

        Parameters
        ----------
        pool
            Runs one annealing in each thread.
        task
            The words to anneal.
        start
            The schedule of these words to start from.
        share
            The share of the remaining search that this annealing may take.
        """
        params = self.params
        walkers = [_Walker(task.graph, seed, params) for seed in self.seeds]
        items = len(task.graph.arrays.queue)
        batch = self._batch(items)
        best, since, warmth, moves = cost(start), self.meter.spent, params.cold * self.unit, 0
        left, converged = share * (1.0 - since), False
        for part in params.rounds:
            if self.meter.spent >= since + left or self.side.over:
                break
            if task is self.task and cost(self.incumbent.schedule) < best:  # another side may have found it
                start = in_queue_order(self.incumbent.schedule)
            positions, begin = positions_of(task.queues, start.order), central_begins(start)
            for walker in walkers:
                walker.begin(positions, begin)
            begun, lasts = self.meter.spent, part * left
            while (spent := self.meter.spent) < begun + lasts and not self.side.over:
                cooled = warmth * params.cooling ** -((spent - begun) / lasts)
                walk = partial(_Walker.walk, moves=batch, warmth=cooled)
                list(pool.map(walk, walkers[: self.side.threads]))
                moves += batch
                leader = min(walkers, key=lambda walker: walker.best)
                if leader.best < best:
                    start = task.schedule(leader.found)
                    best = cost(start)
                    if best + task.saved < cost(self.incumbent.schedule):
                        task.offer(start, self.incumbent)
                yield self.meter.batch()
            if self.side.over:
                break
            speed = moves / (self.meter.spent - since)
            if self.refines and not converged and speed * left > params.converged * items:
                left, converged = params.share_if_converged * left, True
            expected = speed * params.rounds[-1] * left / items  # moves per item of the last round
            warmth = self.unit * min(params.warmest, params.warm * expected**0.5)
        return converged

    def _batch(self, items: int) -> int:
        """Return the number of moves of a batch for words of so many items."""
        return max(self.params.least_batch, self.params.work_per_batch // items)


@dataclass
class _Meter:
    """Measures how much of the search is done: by time or effort if either is limited, else by batches.

    Parameters
    ----------
    side
        The side of the solve that this search is. It knows how long the search has run and how much longer
        it may run.
    planned
        Number of batches of a search without a limit.
    batches
        Number of batches that are done.
    """

    side: Side
    planned: float
    batches: int = 0

    @property
    def timed(self) -> bool:
        """Whether the search is measured by time or effort."""
        return self.side.whole.limited

    @property
    def spent(self) -> float:
        """The share of the search that is done, 0 to 1, or infinity when time is up."""
        if not self.timed:
            return self.batches / self.planned
        left = self.side.left
        return inf if left == 0 else self.side.seconds / (self.side.seconds + left)

    def batch(self) -> float:
        """Count a batch, and return roughly the seconds that it takes."""
        self.batches += 1
        return self.side.whole.params.anneal.seconds_per_batch


def _replace_worst(tuners: list[_Tuner], share: float) -> None:
    """Replace the dearest present rules, a share of all, by copies of the cheapest ones."""
    ranked = sorted(tuners, key=lambda tuner: tuner.cost)
    for best, worst in zip(ranked[: int(share * len(ranked))], reversed(ranked), strict=False):
        worst.follow(best)


def _seeds(seed: int, count: int) -> list[int]:
    return [seed * 1024 + k for k in range(count)]
