"""Schedule families of the literature as planning problems, each with its own placement and method.

A family gets its own best partition and recomputation on the same devices, with the same memory and batch, so
that families are compared fairly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..core.errors import InputError
from ..core.placement import Placement
from .problem import PlanningProblem
from .runtimes import RUNTIMES

BEST = "best"
_PUBLISHED = (
    ("1f1b", "linear"),
    ("zb-h1", "linear"),
    ("interleaved-1f1b", "loop"),
    ("list", "wave"),
    ("v-min", "v"),
    ("v-half", "v"),
    ("v-zb", "v"),
    ("greedy-v", "v"),
    ("dualpipe-v", "v"),
)
"""Methods with the placement for which they were published; for `wave` there is none, so `list` is taken."""


@dataclass(frozen=True, slots=True)
class Family:
    """A scheduling method on one placement.

    Parameters
    ----------
    method
        Name of a method; `best` stands for all heuristics and the method `best`.
    placement
        Name of the placement.
    problem
        The planning problem that asks for the best plan of this family.
    """

    method: str
    placement: str
    problem: PlanningProblem


def families_of(problem: PlanningProblem) -> Iterator[Family]:
    """Yield the published families, and then `best` on each placement of the search space.

    The published families are yielded even if the search space does not have their placement, if the runtime
    of the search space runs them.
    """
    runtime = RUNTIMES[problem.space.runtime]
    published = [(m, p) for m, p in _PUBLISHED if m in runtime.methods and p in runtime.placements]
    for method, placement in (*published, *((BEST, name) for name in problem.space.placements)):
        space = replace(
            problem.space,
            placements=(placement,),
            chunks=_chunks(problem, placement),
            methods=None if method == BEST else (method,),
        )
        yield Family(method, placement, replace(problem, space=space))


def _chunks(problem: PlanningProblem, placement: str) -> tuple[int, ...] | None:
    """Return the numbers of chunks of the search space that suit the placement; None for its usual number.

    For `linear` only the usual one chunk is useful: consecutive stages on one device are one stage in parts.
    """
    if placement == "linear":
        return None
    allowed = [count for count in problem.space.chunks or () if _takes(placement, count)]
    return tuple(allowed) or None


def _takes(placement: str, chunks: int) -> bool:
    try:
        Placement(placement, 2, chunks)
    except InputError:
        return False
    return True
