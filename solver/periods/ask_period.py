"""One question to CP-SAT: is there a repeating block whose period is at most a given one?"""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe.core.budget import Budget

from ..block import Block, Shape, compressed, period_bound
from ..cpsat.periodic.model import PeriodicModel
from ..cpsat.race import search
from ..outcome import Ended


@dataclass(frozen=True, slots=True)
class Answer:
    """CP-SAT's answer to the question whether there is a block whose period is at most a given one.

    Parameters
    ----------
    block
        A valid block whose period is at most the given one, None if CP-SAT has found none.
    refuted
        Whether CP-SAT has proven that there is no such block.
    ended
        How the search ended; `FINISHED` also if time or effort was up.
    """

    block: Block | None
    refuted: bool
    ended: Ended


def ask(shape: Shape, period: int, budget: Budget, effort: float) -> Answer:
    """Ask CP-SAT for a repeating block whose period is at most `period` ticks.

    Parameters
    ----------
    shape
        What the block consists of.
    period
        The largest period allowed, in ticks; at least `period_bound` of the shape.
    budget
        The limits. One search runs on each thread, and the first that ends stops the others.
    effort
        Limit of each search in CP-SAT's deterministic time.
    """
    model = PeriodicModel(shape, period)
    found = search(model, budget, lambda *_: None, effort=effort)
    if found.schedule is None or model.block is None:
        return Answer(None, found.exhausted, found.ended)
    return Answer(compressed(model.block, period_bound(shape)), False, found.ended)
