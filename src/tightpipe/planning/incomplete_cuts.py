"""Bounds of the plans whose cuts are not searched, because a stage lacks F, B or W; see `not_searched`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise

import numpy as np

from ..core.budget import UNLIMITED, Budget, TimeUpError
from ..core.errors import InputError
from .candidates_by_list import all_cuts, device_stages
from .candidates_by_table import SCRATCH, caps_of, fill_before, kind_of, middles, start_of
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .few_candidates import least_sum, least_work
from .incomplete_kernel import least_incomplete
from .not_searched import has_incomplete_cuts
from .partition_kernel import fill_end
from .partitions import partition_count


def incomplete_bound(configurations: Sequence[Configuration], cap: int, until: Budget = UNLIMITED) -> int:
    """Return a lower bound, in ticks, on the cost of plans with an incomplete stage; `NEVER` if none fits.

    Parameters
    ----------
    configurations
        The configurations to which the plans may belong.
    cap
        Ticks from which on it does not matter how large the bound is.
    until
        Limits the time. If it is up before all incomplete cuts of a configuration are bounded, the bound is
        lower; without any time, it remainders on the work of all layers alone.
    """
    asked = [
        each for each in configurations if has_incomplete_cuts(each.problem.model, each.placement.stages)
    ]
    found = NEVER
    for configuration, part in zip(asked, until.in_turn(len(asked)), strict=True):
        found = min(found, _bound(configuration, min(cap, found), part))
    return found


def _bound(configuration: Configuration, cap: int, until: Budget) -> int:
    best = 0
    with suppress(TimeUpError, InputError):  # an input error if a stage can be recomputed in too many ways
        for bound in _bounds(configuration, cap, until):
            best = max(best, bound)
            if best >= cap:
                break
    return best


def _bounds(configuration: Configuration, cap: int, until: Budget) -> Iterator[int]:
    """Yield lower bounds on the cost of plans with an incomplete stage, those that are found soonest first.

    Raises
    ------
    TimeUpError
        If the time of `until` is up.
    """
    yield least_work(configuration)
    yield least_sum(configuration, until)
    kind = kind_of(configuration, until.params.plan)
    if kind is not None:
        yield from _bounds_by_tables(configuration, kind, cap, until)
    elif partition_count(configuration) <= until.params.plan.listed_incomplete:
        yield _least_listed(configuration, until)


def _least_listed(configuration: Configuration, until: Budget) -> int:
    """Return the least bound of an incomplete partition; it is the largest `device_bound` of a device."""
    model, stages = configuration.problem.model, configuration.placement.stages
    devices = device_stages(configuration, configuration.arrays(until=until, partial=True), until)
    found = NEVER
    for cuts in all_cuts(configuration.layers, stages):
        if not all(model.is_complete(*stage) for stage in pairwise(cuts)):
            found = min(found, max(_least_way(device.ways(cuts)) for device in devices))
    return found


def _least_way(ways: Sequence[tuple[int, tuple[int, ...]]]) -> int:
    return ways[0][0] if ways else NEVER


def _bounds_by_tables(configuration: Configuration, kind: int, cap: int, until: Budget) -> Iterator[int]:
    """Yield lower bounds, the last of which is the least bound of an incomplete partition.

    Tables are made for one cap after another, because they are faster to make for a lower one. If a table has
    no partition, then no bound is below its cap. If all bounds are `cap` or more, the last one that is
    yielded is so, too.
    """
    for lower in caps_of(configuration, until.params.plan.slacks):
        found = _least_in_tables(configuration, kind, min(lower, cap), until)
        yield min(found, lower) if lower < cap else found
        if found < NEVER or lower >= cap:
            return


def _least_in_tables(configuration: Configuration, kind: int, cap: int, until: Budget) -> int:
    """Return the least bound of an incomplete partition; `NEVER` if none is below `cap` ticks."""
    p, side = configuration.placement.devices, configuration.layers + 1
    tables = configuration.arrays(cap, until, partial=True).tables
    scratch, found = np.zeros(SCRATCH, np.int64), NEVER
    for middle in middles(configuration, kind):
        least, lacking = (np.full((p + 1, side, side), NEVER) for _ in range(2))
        fill_end(kind, p, configuration.layers, middle, least)
        arguments = tables, kind, p, middle, cap, least, lacking, scratch
        fill_before(configuration, until, partial(least_incomplete, *arguments))
        found = min(found, int(lacking[0][start_of(configuration, kind, middle)]))
    return found
