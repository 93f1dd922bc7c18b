"""Neighbours of a candidate: a layer less in one stage and more in another, or one recomputation differs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise, product
from random import Random

from ..core.params.solve_params import DEFAULTS
from .candidate import Candidate
from .problem import PlanningProblem


def neighbours(
    problem: PlanningProblem,
    candidate: Candidate,
    random: Random,
    recomputing: float = DEFAULTS.plan.recomputing,
) -> Iterator[Candidate]:
    """Yield random neighbours of a candidate, endlessly; yield nothing if it has no neighbour.

    A neighbour recomputes one layer more or one less, or has some consecutive cuts shifted by one layer. Such
    a shift takes a layer from one stage and gives one to another, while the stages between keep their numbers
    of layers. The same layers as before are then recomputed. Where both are possible, a share `recomputing`
    of the neighbours recomputes another layer.
    """
    again = {layer for layers in candidate.recomputed for layer in layers}
    layers = problem.model.layers
    able = [k for k, layer in enumerate(layers) if problem.space.recompute and layer.recomputable]
    movable = 1 < len(candidate.stages) < len(layers)  # a stage can give a layer to another stage
    while able or movable:
        cuts, recomputed = candidate.cuts, again
        if able and (not movable or random.random() < recomputing):  # else a layer goes to another stage
            recomputed = again ^ {random.choice(able)}
        else:
            cuts = _moved(candidate.cuts, random)
        if recomputed is not again or cuts != candidate.cuts:
            yield _candidate(candidate, cuts, recomputed)


def layers_moved(candidate: Candidate) -> Iterator[Candidate]:
    """Yield each candidate in which one stage has a layer less than before, and another one a layer more.

    The stages between the two keep their numbers of layers. The same layers as before are recomputed.
    """
    again = {layer for layers in candidate.recomputed for layer in layers}
    inner = range(1, len(candidate.cuts) - 1)
    for (first, last), step in product(combinations_with_replacement(inner, 2), (-1, 1)):
        cuts = _shifted(candidate.cuts, first, last, step)
        if cuts:
            yield _candidate(candidate, cuts, again)


def _moved(cuts: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """Return the cuts with some consecutive ones shifted by a layer; unchanged if a stage would be empty."""
    inner = range(1, len(cuts) - 1)
    first, last = sorted(random.choices(inner, k=2))
    return _shifted(cuts, first, last, random.choice((-1, 1))) or cuts


def _shifted(cuts: tuple[int, ...], first: int, last: int, step: int) -> tuple[int, ...]:
    """Return the cuts with those from `first` to `last` shifted by `step`; () if a stage would be empty."""
    moved = tuple(cut + step * (first <= k <= last) for k, cut in enumerate(cuts))
    return moved if all(a < b for a, b in pairwise(moved)) else ()


def _candidate(candidate: Candidate, cuts: tuple[int, ...], recomputed: set[int]) -> Candidate:
    parts = tuple(tuple(sorted(recomputed & set(range(a, b)))) for a, b in pairwise(cuts))
    return Candidate(candidate.placement, cuts, parts)
