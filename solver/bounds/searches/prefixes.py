"""A destructive lower bound by dynamic programming: a few devices cannot do their work at a lower cost."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Bound, LogEntry

from ...prefixes import Questions, answer_to
from ...queues import queues_of
from ..formulas import best_bound

_MOST = 10**9  # prefixes of one search, more than any time limit allows


def prefix_bound(
    instance: Instance, upper: int, budget: Budget, lower: int = 0, progress: Progress = ignore
) -> Bound:
    """Bound the cost by searching all prefixes of the schedules of a few devices.

    Parameters
    ----------
    instance
        A problem that has a schedule, without operations that overlap and without flushes.
    upper
        The cost of a known schedule in ticks; no target is larger than upper - 1.
    budget
        The limits for all targets together; a search without a deadline ends after ten minutes.
    lower
        A proven bound of the cost in ticks; no target is smaller.
    progress
        Called with each better bound.

    Notes
    -----
    The argument stands in `prefixes.search_prefixes`. `prefixes.Questions` chooses devices and targets.
    """
    begun, budget, params = perf_counter(), budget.with_deadline(), budget.params
    start = best_bound(instance)
    low, last = max(start.value, lower), start.proof
    queues, questions = queues_of(instance), Questions(instance.devices, low, upper, params.prefixes)
    while budget.left > 0:
        question = questions.next(low, upper)
        if question is None:
            break
        answer, proof = answer_to(queues, question, budget.part(params.bounds.prefix_search), _MOST)
        questions.learn(question, answer)
        if answer.bound is not None and answer.bound > low:
            low, last = answer.bound, proof
            progress(LogEntry(perf_counter() - begun, upper, low, last))
    if low == max(start.value, lower):
        return replace(start, seconds=perf_counter() - begun)
    argument = f"a few devices cannot do their work at a cost of {low - 1} or less"
    return Bound(low, "prefixes", argument, perf_counter() - begun, last)
