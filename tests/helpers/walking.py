"""Random walks of the annealing through the words of an instance, and the times that it keeps up to date."""

from __future__ import annotations

import numpy as np

from tightpipe import Instance, Order, retime
from tightpipe.kernels.arrays import Ints
from tightpipe.params.search import AnnealParams
from tightpipe.solver.engine.run import one_by_one
from tightpipe.solver.improve import annealing
from tightpipe.solver.improve.annealing import Task, central_begins, whole_task
from tightpipe.solver.improve.paths_kernel import load, load_mirror
from tightpipe.solver.improve.words import Positions, Words, order_of_positions, positions_of, words_for

EVERY_MOVE = 1e9
"""The temperature at which every move that is allowed is taken."""


class Walk:
    """A walk from the words that run one microbatch after another."""

    def __init__(self, instance: Instance, seed: int, params: AnnealParams) -> None:
        start = retime(instance, one_by_one(instance))
        self.task: Task = whole_task(instance)
        self._walker = annealing._Walker(self.task.graph, seed, params)
        self._walker.begin(positions_of(self.task.queues, start.order), central_begins(start))

    def go_on(self, moves: int, warmth: float = EVERY_MOVE) -> None:
        """Try so many moves, after which the times that the walk has kept must be those computed anew.

        So must be the times that are left from the start of each item, but for those of when devices begin.
        """
        self._walker.walk(moves, warmth)
        kept, anew, items = self._walker.words, self.timed(), self.items
        assert kept.opens.tolist() == anew.opens.tolist()
        for name in ("place", "ticks", "end", "sent"):
            assert getattr(kept, name)[items].tolist() == getattr(anew, name)[items].tolist(), name
        mirror, fresh = self._walker.mirror, words_for(self._walker.mirrored, anew)
        load_mirror(self.task.graph, anew, self._walker.mirrored, fresh)
        assert mirror.closes.tolist() == fresh.closes.tolist()
        left = (one.end[items] - one.begin[-1] for one in (mirror, fresh))
        assert next(left).tolist() == next(left).tolist()

    def timed(self) -> Words:
        """The words with all times computed anew."""
        graph, kept = self.task.graph, self._walker.words
        anew = words_for(graph)
        load(graph, anew, kept.item.copy(), kept.joined.copy(), kept.begin)
        return anew

    @property
    def items(self) -> Ints:
        """The items of all words, one word after another, without the copies that are left out."""
        item, opens = self._walker.words.item, self._walker.words.opens
        made = np.arange(len(item)) >= np.repeat(opens, np.diff(self.task.graph.offsets))
        return np.asarray(item[made])

    @property
    def order(self) -> Order:
        words = self._walker.words
        return order_of_positions(self.task.queues, self.task.graph, Positions(words.item, words.joined))
