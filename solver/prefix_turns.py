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

_PACE = 200_000  # about as many prefixes are kept per second on a usual machine
_SHARE = 1 / 4  # of the time left, for one search over few devices
_SHARE_OF_ALL = 2 / 3  # of the time left, for one search over all devices, whose answer is final
_SHORTEST = 2.0  # seconds that one search gets at least
_UNLIMITED = 120.0  # seconds of work for one search in a solve without any limit


def prefix_turns(instance: Instance, incumbent: Incumbent, share: float, side: Side) -> Turns:
    """Raise the bound by searches over the prefixes of a few devices, one search a turn.

    Parameters
    ----------
    instance
        A problem that solvers model. If its microbatches take different routes, there are no turns.
    incumbent
        The schedule and the bound to improve.
    share
        The share of the side's time, 0 to 1, after which no further search begins.
    side
        The limits of the turns.
    """
    if len(instance.placement.routes) > 1:
        return ""
    queues = queues_of(instance)
    questions = Questions(instance.devices, incumbent.bound, cost(incumbent.schedule))
    most = side.seconds + share * side.left if side.whole.limited else inf
    while not incumbent.closed and side.budget.left > 0 and side.seconds < most:
        question = questions.next(incumbent.bound, cost(incumbent.schedule))
        if question is None:
            return ""
        part = _SHARE_OF_ALL if len(question.devices) == instance.devices else _SHARE
        seconds = max(_SHORTEST, part * side.left) if side.whole.limited else _UNLIMITED
        budget = side.budget if side.whole.endless else side.budget.within(seconds)
        answer, proof = answer_to(queues, question, budget, int(_PACE * seconds))
        incumbent.offer(answer.schedule)
        incumbent.prove(answer.bound, proof)
        questions.learn(question, answer)
        yield (1 + answer.extended) / _PACE
    return ""
