"""Candidates with much recomputation in simple patterns, from which the search may go on to neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil

from .candidate import Candidate
from .problem import PlanningProblem


def seeds(problem: PlanningProblem, candidate: Candidate, shares: Sequence[float]) -> Iterator[Candidate]:
    """Yield candidates that have the same cuts and recompute much; none if nothing may be recomputed.

    Some candidates recompute a share of the recomputable layers of each stage, and others all recomputable
    layers of a share of the stages, but not of all. Shares are taken from the front. The first stages hold
    the activations of a microbatch longest, so recomputing there saves most.
    """
    if not problem.space.recompute:
        return
    able = [tuple(problem.model.recomputable(*stage)) for stage in candidate.stages]
    for share in shares:
        yield replace(candidate, recomputed=tuple(some[: ceil(share * len(some))] for some in able))
    for share in shares[:-1]:
        whole = ceil(share * len(able))
        yield replace(candidate, recomputed=tuple(some if s < whole else () for s, some in enumerate(able)))
