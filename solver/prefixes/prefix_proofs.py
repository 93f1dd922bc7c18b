"""A member of a portfolio: searches over the prefixes of a few devices raise the bound.

A search over the prefixes of all devices also finds a schedule, unless it proves that none is cheaper.
"""

from __future__ import annotations

from math import inf

from tightpipe.core.instance import Instance

from ..engine.incumbent import Incumbent
from ..engine.worker import Worker
from ..outcome import FINISHED, Outcome, Worked
from ..queues import queues_of
from .answer import answer_to
from .questions import Questions

_MANY = 10**9  # prefixes, more than any time limit allows


class PrefixProofs:
    """Asks one `Question` about a few devices after another, one a step, and tells the incumbent the answers.

    Parameters
    ----------
    instance
        A problem that solvers model.
    incumbent
        The schedule and the bound to improve.
    share
        The share of the worker's time, 0 to 1, after which no further search begins.
    part
        The share of the worker's time, 0 to 1, that one search may take.
    worker
        The worker that runs this member.
    """

    def __init__(
        self, instance: Instance, incumbent: Incumbent, share: float, part: float, worker: Worker
    ) -> None:
        self._queues, self._incumbent = queues_of(instance), incumbent
        params = self._params = worker.whole.params.prefixes
        left = worker.expected if worker.whole.limited else params.unlimited
        self._end = worker.seconds + share * left if worker.whole.limited else inf
        self._seconds = max(params.shortest, part * left)
        self._begin()

    def step(self, worker: Worker) -> Outcome:
        """Ask the next question."""
        known = self._incumbent
        if known.closed or worker.budget.left <= 0 or worker.seconds >= self._end:
            return FINISHED
        if known.cost - known.bound <= self._params.begin_anew * self._gap:
            self._begin()
        question = self._questions.next(known.bound, known.cost)
        if question is None:
            return FINISHED
        # A time limit ends a search at a deadline. Without one the number of prefixes is limited, so that the
        # search ends at the same prefix in every run.
        endless = worker.whole.endless
        budget = worker.budget if endless else worker.budget.within(self._seconds)
        most = int(self._params.pace * self._seconds) if endless else _MANY

        def moot() -> bool:
            return known.cost <= question.target

        answer, proof = answer_to(self._queues, question, budget, most, moot)
        if answer.bound is not None or not moot():
            self._questions.learn(question, answer)
        known.offer(answer.schedule)
        known.prove(answer.bound, proof)
        return Worked((1 + answer.extended) / self._params.pace)

    def _begin(self) -> None:
        """Begin the questions anew for the present gap.

        The smaller the gap is, the more precisely the questions compare sets of devices.
        """
        bound, known = self._incumbent.bound, self._incumbent.cost
        self._gap = known - bound
        self._questions = Questions(self._queues.instance.devices, bound, known, self._params)
