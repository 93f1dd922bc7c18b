"""What is annealed: the words of the instance, or of an instance with fewer microbatches that is unfolded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tightpipe.core.instance import Instance
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule
from tightpipe.core.validate import validate

from ..engine.incumbent import Incumbent
from ..queues import Queues, queues_of
from .event_graph import EventGraph, event_graph_of, with_fixed
from .fold import Fold
from .words import Positions, order_of_positions


@dataclass(frozen=True)
class Task:
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

    @property
    def unit(self) -> float:
        """The mean duration of an operation in ticks, by which temperatures are measured."""
        arrays = self.graph.arrays
        return float(arrays.queues["duration"][arrays.queue].mean())

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


def whole_task(instance: Instance) -> Task:
    queues = queues_of(instance)
    return Task(queues, event_graph_of(queues.instance), 0, lambda found: found)


def folded_task(folded: Fold) -> Task:
    queues = queues_of(folded.schedule.instance)
    graph = with_fixed(event_graph_of(queues.instance), folded.first, folded.end)
    return Task(queues, graph, folded.saved, lambda found: folded.unfold(found.order))
