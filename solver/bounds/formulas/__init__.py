"""Proven lower bounds of the cost by closed formulas, which are computed in no noticeable time."""

from collections.abc import Callable
from functools import lru_cache

from tightpipe.core.instance import Instance
from tightpipe.core.result import Bound

from ..split_backwards import split_backwards
from .chain import chain_bound
from .ramps import cooldown_bound, ramps_bound, warmup_bound
from .three_times import three_times, three_times_bound
from .two_times import TwoTimes, two_times, two_times_bound
from .work import work_bound

BOUNDS: tuple[Callable[[Instance], Bound], ...] = (
    work_bound,
    chain_bound,
    warmup_bound,
    cooldown_bound,
    ramps_bound,
    two_times_bound,
    three_times_bound,
)
"""All bounds by closed formulas, in the sequence from the simplest proof to the hardest."""


def all_bounds(instance: Instance) -> list[Bound]:
    """Return every bound of `BOUNDS` for an instance that has a schedule.

    Only the bound by work knows fused backwards. The others are bounds of instances without them
    (`split_backwards`), of which the largest counts.
    """
    without = split_backwards(instance)
    if not without:
        return [work_bound(instance)]
    return [max(map(bound, without), key=lambda found: found.value) for bound in BOUNDS]


@lru_cache(maxsize=64)  # every search asks for it before it begins
def best_bound(instance: Instance) -> Bound:
    """Return the largest bound of `BOUNDS`; of several equal ones, the one with the simplest proof."""
    return max(all_bounds(instance), key=lambda bound: bound.value)


__all__ = [
    "BOUNDS",
    "TwoTimes",
    "all_bounds",
    "best_bound",
    "chain_bound",
    "cooldown_bound",
    "ramps_bound",
    "three_times",
    "three_times_bound",
    "two_times",
    "two_times_bound",
    "warmup_bound",
    "work_bound",
]
