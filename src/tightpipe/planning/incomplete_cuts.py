"""Bounds of the plans whose cuts are not searched, because a stage lacks F, B or W; see `not_searched`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from time import perf_counter

import numpy as np

from .candidates_by_list import all_cuts, device_stages
from .candidates_by_table import SCRATCH, caps_of, kind_of, middles, start_of
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .few_candidates import least_sum
from .incomplete_kernel import least_incomplete
from .not_searched import has_incomplete_cuts
from .partitions import partition_count

_MOST_LISTED = 5000  # partitions
_MOST_LAYERS = 160  # more take seconds


def incomplete_bound(configurations: Sequence[Configuration], cap: int, seconds: float = inf) -> int:
    """Return a lower bound, in ticks, on the cost of plans with an incomplete stage; `NEVER` if none fits.

    Parameters
    ----------
    configurations
        The configurations to which the plans may belong.
    cap
        Ticks from which on it does not matter how large the bound is.
    seconds
        Wall seconds after which no further table is made, so that the bound may be lower; with 0 or less,
        the bound rests on the work of all layers alone.
    """
    begun = perf_counter()
    found = NEVER
    for configuration in configurations:
        if has_incomplete_cuts(configuration.problem.model, configuration.placement.stages):
            found = min(found, _bound(configuration, cap, seconds - (perf_counter() - begun)))
    return found


def _bound(configuration: Configuration, cap: int, seconds: float) -> int:
    by_work, kind = least_sum(configuration), kind_of(configuration)
    if seconds <= 0 or by_work >= cap or configuration.layers > _MOST_LAYERS:
        return by_work
    if kind is not None:
        return max(by_work, _least_in_tables(configuration, kind, cap, seconds))
    return _least_listed(configuration) if partition_count(configuration) <= _MOST_LISTED else by_work


def _least_listed(configuration: Configuration) -> int:
    """Return the least bound of an incomplete partition; it is the largest `device_bound` of a device."""
    model, stages = configuration.problem.model, configuration.placement.stages
    devices = device_stages(configuration, configuration.arrays(partial=True))
    found = NEVER
    for cuts in all_cuts(configuration.layers, stages):
        if not all(model.is_complete(*stage) for stage in pairwise(cuts)):
            found = min(found, max(_least_way(device.ways(cuts)) for device in devices))
    return found


def _least_way(ways: Sequence[tuple[int, tuple[int, ...]]]) -> int:
    return ways[0][0] if ways else NEVER


def _least_in_tables(configuration: Configuration, kind: int, cap: int, seconds: float) -> int:
    """Return the least bound of an incomplete partition, or a lower number if time is up.

    Tables are made for one cap after another, because they are faster to make for a lower one. If a table has
    no partition, then no bound is below its cap. If all bounds are `cap` or more, the result is so, too.
    """
    begun, floor = perf_counter(), 0
    for lower in caps_of(configuration):
        found = _table(configuration, kind, min(lower, cap))
        if found < NEVER or lower >= cap:
            return found
        floor = lower
        if perf_counter() - begun >= seconds:
            break
    return floor


def _table(configuration: Configuration, kind: int, cap: int) -> int:
    p, side = configuration.placement.devices, configuration.layers + 1
    tables = configuration.arrays(cap, partial=True).tables
    least, lacking = (np.zeros((p + 1, side, side), np.int64) for _ in range(2))
    scratch, found = np.zeros(SCRATCH, np.int64), NEVER
    for middle in middles(configuration, kind):
        least_incomplete(tables, kind, p, middle, cap, least, lacking, scratch)
        found = min(found, int(lacking[0][start_of(configuration, kind, middle)]))
    return found
