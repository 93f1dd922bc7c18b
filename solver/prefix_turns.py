"""Turns of the proofs: searches over the prefixes of a few devices raise the bound.

A search over the prefixes of all devices also finds a schedule, unless it proves that none is cheaper.
"""

from __future__ import annotations

from math import inf

from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.params.proof import PrefixParams

from .incumbent import Incumbent
from .prefixes import Questions, answer_to
from .queues import queues_of
from .two_sides import Side, Turns

_MANY = 10**9  # prefixes, more than any time limit allows


def prefix_turns(instance: Instance, incumbent: Incumbent, share: float, part: float, side: Side) -> Turns:
    """Raise the bound by searches over the prefixes of a few devices, one search a turn.

    Parameters
    ----------
    instance
        A problem that solvers model.
    incumbent
        The schedule and the bound to improve.
    share
        The share of the side's time, 0 to 1, after which no further search begins.
    part
        The share of the side's time, 0 to 1, that one search may take.
    side
        The limits of the turns.
    """
    params = side.whole.params.prefixes
    left = side.left if side.whole.limited else params.unlimited
    most = side.seconds + share * left if side.whole.limited else inf
    asking = _Asking(instance, incumbent, params)
    while not incumbent.closed and side.budget.left > 0 and side.seconds < most:
        extended = asking.ask(side, part * left)
        if extended is None:
            break
        yield (1 + extended) / params.pace
    return ""


class _Asking:
    """Asks one `Question` about a few devices after another, and tells the incumbent the answers."""

    def __init__(self, instance: Instance, incumbent: Incumbent, params: PrefixParams) -> None:
        self._queues, self._incumbent, self._params = queues_of(instance), incumbent, params
        self._begin()

    def ask(self, side: Side, seconds: float) -> int | None:
        """Ask the next question, and return the number of prefixes that its search has kept.

        The search gets `seconds`, or `shortest` if that is more. The result is None if no question is left.
        """
        bound, known = self._incumbent.bound, self._incumbent.schedule
        if cost(known) - bound <= self._params.begin_anew * self._gap:
            self._begin()
        question = self._questions.next(bound, cost(known))
        if question is None:
            return None
        seconds = max(self._params.shortest, seconds)
        # A time limit ends a search at a deadline. Without one the number of prefixes is limited, so that the
        # search ends at the same prefix in every run.
        endless = side.whole.endless
        budget = side.budget if endless else side.budget.within(seconds)
        most = int(self._params.pace * seconds) if endless else _MANY

        def moot() -> bool:
            return cost(self._incumbent.schedule) <= question.target

        answer, proof = answer_to(self._queues, question, budget, most, moot)
        if answer.bound is not None or not moot():
            self._questions.learn(question, answer)
        self._incumbent.offer(answer.schedule)
        self._incumbent.prove(answer.bound, proof)
        return answer.extended

    def _begin(self) -> None:
        """Begin the questions anew for the present gap.

        The smaller the gap is, the more precisely the questions compare sets of devices.
        """
        bound, known = self._incumbent.bound, cost(self._incumbent.schedule)
        self._gap = known - bound
        self._questions = Questions(self._queues.instance.devices, bound, known, self._params)
