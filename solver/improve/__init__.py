"""The method ``improve``: a local search that always has a schedule, and finds better ones with more time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.result import Progress, Result, ignore
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget
from tightpipe.params.search import FoldParams

from ..bounds.destructive import energetic_bound
from ..engine.portfolio import Begin, Begins, Sequence, Worker, alone
from ..engine.run import Incumbent, in_queue_order, run
from ..queues import Rule, rules_of
from .annealing import Annealing, Meter, batch_of, folded_task, queued, task_without_copies, whole_task
from .fold import Fold, fold
from .neighbourhood import Neighbourhoods, within_reach
from .rule_search import RuleSearch


def local_search(instance: Instance, incumbent: Incumbent) -> Begin:
    """Return what begins a local search, as `improve` describes it, which improves the incumbent's schedule.

    A step takes some hundredths of a second, or about a second while CP-SAT searches neighbourhoods.
    """
    return lambda worker: Sequence(_phases(instance, incumbent, worker))


def _phases(instance: Instance, incumbent: Incumbent, worker: Worker) -> Begins:
    task, params = whole_task(instance), worker.whole.params
    items = len(task.graph.arrays.queue)
    within = within_reach(instance, worker.whole.params.neighbourhoods)
    refines = within and worker.whole.limited  # whether neighbourhoods may follow
    meter = Meter(worker, params.anneal.moves_per_item * items / batch_of(items, params.anneal))
    rules = task if instance.offload is None else task_without_copies(instance)
    before_rules = incumbent.schedule
    rules = replace(
        rules, graph=rules.graph._replace(joint=None, differ=None, copies=None)
    )  # read by no rule
    if rules.queues.instance.infeasibility() is None:
        yield partial(RuleSearch, rules, incumbent, meter)
    if Rule.EMPTY in rules_of(instance):  # annealing sees no circle of operations that take no time
        if refines:
            yield partial(Neighbourhoods, instance, incumbent)
        return
    if worker.over:
        return
    folded = None if task.graph.joint else _folded(incumbent.schedule, before_rules, params.fold)
    if folded is not None and not worker.over:
        few, share = folded_task(folded), params.fold.share
        yield partial(Annealing, few, folded.schedule, share, incumbent, meter, folded=True, refines=refines)
    if worker.over:
        return
    start = queued(incumbent.schedule)
    if start is None:
        return
    annealing = Annealing(task, start, 1.0, incumbent, meter, worker, refines=refines)
    yield lambda _: annealing
    if annealing.converged:
        yield partial(Neighbourhoods, instance, incumbent)


def _folded(found: Schedule, before: Schedule, params: FoldParams) -> Fold | None:
    """Return the schedule folded, or else the one `before` the search for rules, if it costs little more.

    Annealing tries more moves of each operation of a folded schedule, which often makes up for its cost.
    """
    folded = fold(in_queue_order(found), params)
    if folded is None and cost(found) < cost(before) <= (1 + params.worth) * cost(found):
        folded = fold(in_queue_order(before), params)
    return folded


def improve(
    instance: Instance, budget: Budget, start: Schedule | None = None, progress: Progress = ignore
) -> Result:
    """Search for a cheaper schedule by local search.

    First comes a search for a dispatching rule: a few weights from which a whole schedule follows
    (`dispatch_kernel`). The weights of several rules are annealed at once, and bad rules give way to copies
    of good ones. Then the sequences of operations are annealed, from the better of the start and the schedule
    of the best rule. A move takes an operation to another place of its device's sequence, joins operations to
    one that saves time, parts them, lets something leave its device and come back, or lets a device begin at
    another time. The cost after each move is computed, not estimated. Where the schedule repeats itself,
    warm-up and cool-down are annealed first, with fewer microbatches (`fold`). Where annealing converges,
    CP-SAT searches large neighbourhoods of the best schedule for the rest of the time.

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
    return run(
        *("improve", instance, budget, start, progress),
        lambda incumbent: alone(budget, incumbent, local_search(instance, incumbent)),
        opening=energetic_bound,
    )
