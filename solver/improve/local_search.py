"""The local search as a member of a portfolio: its phases follow one another."""

from __future__ import annotations

from functools import partial

from tightpipe.core.instance import Instance

from ..engine.incumbent import Incumbent
from ..engine.sequence import Begins, Sequence
from ..engine.worker import Begin, Worker
from ..start import in_queue_order
from .annealing import Annealing
from .fold import fold
from .meter import Meter, batch_of
from .neighbourhood import Neighbourhoods, within_reach
from .rule_search import RuleSearch
from .task import folded_task, whole_task


def local_search(instance: Instance, incumbent: Incumbent) -> Begin:
    """Return what begins a local search, as `improve` describes it.

    A step takes some hundredths of a second, or about a second while CP-SAT searches neighbourhoods.

    Parameters
    ----------
    instance
        The problem.
    incumbent
        Has the schedule to improve, and receives each cheaper one.
    """
    return lambda worker: Sequence(_phases(instance, incumbent, worker))


def _phases(instance: Instance, incumbent: Incumbent, worker: Worker) -> Begins:
    task, params = whole_task(instance), worker.whole.params
    items = len(task.graph.arrays.queue)
    within = within_reach(instance, worker.whole.params.neighbourhoods)
    refines = within and worker.whole.limited  # whether neighbourhoods may follow
    meter = Meter(worker, params.anneal.moves_per_item * items / batch_of(items, params.anneal))
    yield partial(RuleSearch, task, incumbent, meter)
    if worker.over:
        return
    folded = None if task.graph.joint else fold(in_queue_order(incumbent.schedule), params.fold)
    if folded is not None and not worker.over:
        few, share = folded_task(folded), params.fold.share
        yield partial(Annealing, few, folded.schedule, share, incumbent, meter, folded=True, refines=refines)
    if worker.over:
        return
    annealing = Annealing(
        task, in_queue_order(incumbent.schedule), 1.0, incumbent, meter, worker, refines=refines
    )
    yield lambda _: annealing
    if annealing.converged:
        yield partial(Neighbourhoods, instance, incumbent)
