"""Turns of the proofs: searches over the prefixes of a few devices raise the bound.

A search over the prefixes of all devices also finds a schedule, unless it proves that none is cheaper.
"""

from __future__ import annotations

from math import inf

from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost

from .incumbent import Incumbent
from .prefixes import Questions, answer_to
from .queues import queues_of
from .two_sides import Side, Turns

_PACE = 1_000_000  # about as many prefixes are kept per second on a usual machine
_MANY = 10**9  # prefixes, more than any time limit allows
_SHORTEST = 0.3  # seconds that one search gets at least
_LESS = 1 / 4  # of the gap with which the questions began; with less, they begin anew
_UNLIMITED = 100.0  # seconds that count as left for one search in a solve without any limit


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
    left = side.left if side.whole.limited else _UNLIMITED
    most = side.seconds + share * left if side.whole.limited else inf
    asking = _Asking(instance, incumbent)
    while not incumbent.closed and side.budget.left > 0 and side.seconds < most:
        extended = asking.ask(side, part * left)
        if extended is None:
            break
        yield (1 + extended) / _PACE
    return ""


class _Asking:
    """Asks one `Question` about a few devices after another, and tells the incumbent the answers."""

    def __init__(self, instance: Instance, incumbent: Incumbent) -> None:
        self._queues, self._incumbent = queues_of(instance), incumbent
        self._begin()

    def ask(self, side: Side, seconds: float) -> int | None:
        """Ask the next question, and return the number of prefixes that its search has kept.

        The search gets `seconds`, or `_SHORTEST` if that is more. The result is None if no question is left.
        """
        bound, known = self._incumbent.bound, self._incumbent.schedule
        if cost(known) - bound <= _LESS * self._gap:
            self._begin()
        question = self._questions.next(bound, cost(known))
        if question is None:
            return None
        seconds = max(_SHORTEST, seconds)
        # A time limit ends a search at a deadline. Without one the number of prefixes is limited, so that the
        # search ends at the same prefix in every run.
        endless = side.whole.endless
        budget = side.budget if endless else side.budget.within(seconds)
        most = int(_PACE * seconds) if endless else _MANY

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
        self._questions = Questions(self._queues.instance.devices, bound, known)
