"""The method ``improve``: an anytime search from the best schedule known."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np

from tightpipe.instance import Instance
from tightpipe.metrics import cost
from tightpipe.options import Options
from tightpipe.result import Result
from tightpipe.retime import retime
from tightpipe.schedule import Schedule
from tightpipe.validate import validate

from ..clock import Clock
from ..progress import Incumbent
from ..queues import Queues, queues_of
from ..run import run_search
from ..start import in_queue_order
from .anneal import anneal
from .network import Ints, Network, Words, items_of, network_of, order_of_items, words_for
from .paths import cost_of, load

# shares of the search; each round anneals from the incumbent. The first one, cold, also shows the speed.
ROUNDS = (0.1, 0.3, 0.3, 0.3)
_COLD = 0.01  # temperatures are in mean durations of an operation, and fall to a twentieth in a round
_WARM = 0.0045  # for one move per item; measured: 0.02 pays at 65 of them, 0.1 at 650, 0.2 from 2000 on
_WARMEST = 0.2
_COOLING = 20.0
_MOVES_PER_ITEM = 2000  # of the whole search, where there is no time limit
_WORK_PER_BATCH = 2_000_000  # items times moves; a batch takes about a tenth of a second
_LEAST_BATCH = 25


class _Walker:
    """One walk over words, with a generator and a best of its own."""

    def __init__(self, network: Network, seed: int) -> None:
        self.network = network
        self.words: Words = words_for(network)
        self.random = np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
        self.cost = self.best = 0.0
        self.item: Ints = np.zeros(0, np.int64)

    def begin(self, item: Ints) -> None:
        """Start from these words."""
        load(self.network, self.words, item)
        self.item = item.copy()
        self.cost = self.best = cost_of(self.network, self.words, np.inf)

    def walk(self, moves: int, warmth: float) -> None:
        """Try moves at a temperature in ticks."""
        self.cost, self.best = anneal(
            *(self.network, self.words, self.random, moves, warmth, self.cost, self.best, self.item)
        )


def improve(
    instance: Instance, options: Options, start: Schedule | None = None, lower_bound: int | None = None
) -> Result:
    """Search for a cheaper schedule: simulated annealing over the sequences of operations.

    A move takes an operation to another place of its device's sequence; its cost is exact, with the best
    start times. Messages are taken to find their links free; what is returned counts them as they are.

    Parameters
    ----------
    instance
        The problem.
    options
        Time limit, threads, seed, progress. Every thread has its own walk; after each round all of
        them start from the best. Without a time limit the number of moves is fixed, and with one
        worker the result as well.
    start
        A valid schedule; without one, microbatch after microbatch is.
    lower_bound
        A proven bound of the cost, used if it is better than those of `bounds`: reaching it ends the search.

    Returns
    -------
    Result
        Never worse than the start; `optimal` when the cost is a proven bound.

    Raises
    ------
    InputError
        If the start is not a valid schedule of the instance.
    """
    return run_search("improve", instance, options, start, lower_bound, partial(_search, instance, options))


def _search(instance: Instance, options: Options, incumbent: Incumbent, clock: Clock) -> str:
    queues = queues_of(instance)
    network = network_of(queues)
    item = items_of(queues, in_queue_order(incumbent.schedule).order)
    walkers = [_Walker(network, seed) for seed in _seeds(options)]
    batch = max(_LEAST_BATCH, _WORK_PER_BATCH // len(item))
    budget = _Budget(clock, options.time_limit, _MOVES_PER_ITEM * len(item) / batch)
    unit = float(network.duration[network.queue].mean())
    best = np.inf
    with ThreadPoolExecutor(len(walkers)) as pool:
        since, warmth = 0.0, _COLD * unit
        for share in ROUNDS:
            for walker in walkers:
                walker.begin(item)
            while budget.spent < since + share and not incumbent.closed:
                cooled = warmth * _COOLING ** -((budget.spent - since) / share)
                list(pool.map(partial(_Walker.walk, moves=batch, warmth=cooled), walkers))
                budget.batches += 1
                leader = min(walkers, key=lambda walker: walker.best)
                if leader.best < best:
                    best, item = leader.best, leader.item.copy()
                    _offer(queues, network, item, ceil(best - 1e-6), incumbent)
            since += share
            moves_per_item = budget.batches * batch / len(item) / since * ROUNDS[-1]
            warmth = unit * min(_WARMEST, _WARM * moves_per_item**0.5)
    return ""


@dataclass
class _Budget:
    """How much of the search is done: by time where there is a limit, else by batches of moves."""

    clock: Clock
    limit: float | None
    planned: float
    batches: int = 0

    @property
    def spent(self) -> float:
        """From 0 to 1."""
        return self.batches / self.planned if self.limit is None else self.clock.elapsed / self.limit


def _seeds(options: Options) -> list[int]:
    return [options.seed * 1024 + k for k in range(options.threads)]


def _offer(queues: Queues, network: Network, item: Ints, value: int, incumbent: Incumbent) -> None:
    """Re-time, validate and keep words that promise a lower cost."""
    if value >= cost(incumbent.schedule):
        return
    schedule = retime(queues.instance, order_of_items(queues, network, item))
    violations = validate(queues.instance, schedule)
    if violations:
        raise AssertionError(f"the search found an invalid schedule, please report: {violations[0]}")
    incumbent.offer(schedule)
