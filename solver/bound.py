"""The searches for lower bounds, in the sequence in which ``bound`` runs them."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

from tightpipe.model.result import Bound, Progress
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget
from tightpipe.params.proof import BoundParams
from tightpipe.params.solve_params import DEFAULTS

from .bounds.destructive import energetic_bound, prefix_bound, shaving_bound
from .cpsat.targets import refutation_bound
from .engine.incumbent import Incumbent
from .engine.portfolio import alone, in_sequence
from .engine.run import Search, bounding


class Asked(NamedTuple):
    """A search for bounds, as `bound` asks it."""

    search: Search
    share: float  # of the time left when it begins, 0 to 1


def bound_searches(params: BoundParams = DEFAULTS.bounds) -> tuple[Asked, ...]:
    """Return the searches in sequence."""
    return (
        Asked(energetic_bound, params.energetic),
        Asked(shaving_bound, params.shaving),
        Asked(prefix_bound, params.prefixes),
        Asked(refutation_bound, params.refutation),
    )


def raise_bounds(start: Schedule, budget: Budget, found: list[Bound], progress: Progress) -> None:
    """Append better and better bounds to those `found`, of which there is one, and report each to `progress`.

    No bound is above the cost of `start`, a valid schedule; else raise a ContradictionError.
    """
    best = max(found, key=_value)
    incumbent = Incumbent(start, best.value, best.proof, perf_counter(), progress, best.name)

    def keep(bound: Bound) -> None:
        if bound.value > max(map(_value, found)):
            found.append(bound)

    members = [
        begin
        for search, share in bound_searches(budget.params.bounds)
        for begin in bounding(search, incumbent, share, cut=search is not prefix_bound, tell=keep)
    ]
    alone(budget, incumbent, in_sequence(*members))


def _value(bound: Bound) -> int:
    return bound.value
