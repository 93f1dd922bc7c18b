"""Proven lower bounds of the cost by closed formulas, which are computed in no noticeable time."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from tightpipe.model.instance import Instance
from tightpipe.model.result import Bound

from ..relaxed import relaxed, without_copies
from .away import away_bound
from .copies import copies_bound
from .ends import ends_bound, splits_bound
from .paths import chain_bound, work_bound
from .ramps import ramps_bound
from .two_times import TwoTimes, three_times, three_times_bound, two_times, two_times_bound

BOUNDS: tuple[Callable[[Instance], Bound], ...] = (
    work_bound,
    chain_bound,
    ramps_bound,
    two_times_bound,
    three_times_bound,
    away_bound,
)
"""All bounds by closed formulas, in the sequence from the simplest proof to the hardest."""


def all_bounds(instance: Instance) -> list[Bound]:
    """Return every bound by formula for an instance that has a schedule.

    Those of `BOUNDS` know neither fused backwards nor stages without B or W, and no more of a step than its
    operations. They are asked about narrower instances (`relaxed`), and the largest answer counts. Where
    these leave something out, `ends` and `splits` come beside them, which know every rule but copies;
    `splits` also comes where all devices share one frame and microbatches are alike, as it counts whole W's.
    What copies can do is bounded by `copies`, and `splits` knows what they cannot; all others are asked about
    an instance without them. `copies` also bounds how long slices take that wait for each other while memory
    is scarce.
    """
    narrow, resident = relaxed(instance), without_copies(instance)
    found = [_largest(_raised(bound(one), around) for one, around in narrow) for bound in BOUNDS if narrow]
    is_narrow = [one.instance for one in narrow] == [instance]
    if not is_narrow:
        found = [*(found or [work_bound(resident)]), ends_bound(resident)]
    if not is_narrow or (instance.whole and not instance.classes):
        found.append(splits_bound(instance))
    waits = instance.slice_count > 1 or instance.offload is not None
    return [*found, copies_bound(instance)] if waits else found


def _largest(bounds: Iterable[Bound]) -> Bound:
    return max(bounds, key=lambda bound: bound.value)


def _raised(bound: Bound, around: int) -> Bound:
    if not around:
        return bound
    argument = f"{bound.argument}; {around} ticks come before and after"
    return replace(bound, value=bound.value + around, argument=argument)


@lru_cache(maxsize=64)  # every search asks for it before it begins
def best_bound(instance: Instance) -> Bound:
    """Return the largest bound by formula; of several equal ones, the one with the simplest proof."""
    return _largest(all_bounds(instance))


__all__ = [
    "BOUNDS",
    "TwoTimes",
    "all_bounds",
    "away_bound",
    "best_bound",
    "chain_bound",
    "ends_bound",
    "ramps_bound",
    "splits_bound",
    "three_times",
    "three_times_bound",
    "two_times",
    "two_times_bound",
    "work_bound",
]
