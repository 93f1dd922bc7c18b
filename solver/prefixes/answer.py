"""The answer to a `Question`, from windows under its target or from a search over prefixes inside them."""

from __future__ import annotations

from collections.abc import Callable

from tightpipe.core.budget import Budget
from tightpipe.core.result import Proof

from ..queues import Queues
from ..windows import windows_of
from .questions import Question
from .search import PrefixSearch, search_prefixes


def answer_to(
    queues: Queues,
    question: Question,
    budget: Budget,
    most: int,
    moot: Callable[[], bool] = lambda: False,
) -> tuple[PrefixSearch, Proof]:
    """Return the answer to a question, and the kind of proof behind its bound.

    Parameters
    ----------
    queues
        The queues of an instance without operations that overlap and without flushes.
    question
        The question.
    budget, most, moot
        The limits, as in `search_prefixes`.
    """
    windows = windows_of(queues, question.target, budget)
    if not windows.feasible:
        return PrefixSearch(question.target + 1, 0), Proof.SHAVING
    return search_prefixes(queues, windows, question.devices, budget, most, moot), Proof.PREFIXES
