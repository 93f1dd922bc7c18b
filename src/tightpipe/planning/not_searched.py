"""Cuts that are not searched: those with an incomplete stage, which lacks F, B or W.

A stage is incomplete if its layers have no F, no B or no W that takes time, e.g. an embedding alone, whose B
takes no time, or frozen layers, which have no W. The scheduling problem of all other commands has an F, a B
and a W at every stage, so `tightpipe.plan` returns no plan with an incomplete stage. As such a cut may be
better than all others, the bound of a plan holds for these cuts, too.
"""

from __future__ import annotations

from .check_problem import stage_numbers_of
from .layered_model import Model
from .problem import PlanningProblem

RULE = "a stage whose forward, backward or weight work is 0"
"""What cuts have that are not searched, in words."""


def not_searched(problem: PlanningProblem) -> str:
    """Return in words which cuts of the model are not searched; '' if all are."""
    if not any(has_incomplete_cuts(problem.model, stages) for stages in stage_numbers_of(problem)):
        return ""
    return f"cuts with {RULE}; the bound holds for them, too"


def has_incomplete_cuts(model: Model, stages: int) -> bool:
    """Return whether some cut of a model into this many stages has an incomplete stage."""
    last = len(model.layers) - 1
    if stages > last + 1:
        return False
    if stages == 1:
        return not model.is_complete(0, last + 1)
    alone = range(last + 1) if stages > 2 else (0, last)  # the layers that can be a stage by themselves
    return not all(model.is_complete(index, index + 1) for index in alone)
