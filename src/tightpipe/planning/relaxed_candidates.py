"""Candidates whose devices are far from their limits, for which cheap schedules are easiest to find."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ..core.budget import UNLIMITED, Budget
from ..kernels.arrays import Ints
from .candidate import Candidate
from .candidates_by_table import SCRATCH, Way, candidate_of, in_slices, kind_of, middles, start_of
from .configuration import Configuration
from .load_kernel import Relaxing, least_loaded


def relaxed_candidate(
    configuration: Configuration, cap: int, held: float, until: Budget = UNLIMITED
) -> Candidate | None:
    """Return the candidate with the least sum of loads among those with bounds below a cap.

    `load_kernel.load` says what the load of a device is. Candidates with the least bound often have a
    device whose memory is nearly full all the time, and all their schedules cost much more than the bound.
    If the second half of the stages can begin at many layers, only some of them are tried.

    Parameters
    ----------
    configuration
        The configuration to which the candidate belongs.
    cap
        A cost in ticks.
    held
        How many times as long as necessary microbatches are supposed to hold memory; see `load`.
    until
        Limits the time.

    Raises
    ------
    TimeUpError
        If the time of `until` is up before all partitions were compared.

    Returns
    -------
    Candidate or None
        None if no candidate has a bound below `cap`, or if `kind_of` returns None for the configuration.
    """
    kind = kind_of(configuration, until.params.plan)
    if kind is None:
        return None
    p, side = configuration.placement.devices, configuration.layers + 1
    arrays = configuration.arrays(cap, until)
    least, chosen = np.zeros((p + 1, side, side)), np.zeros((p + 1, side, side, 4), np.int64)
    scratch, best, ways = np.zeros(SCRATCH, np.int64), np.inf, list[Way]()
    params = until.params.plan
    relaxing = Relaxing(cap, held, params.load_power, params.evenness)
    for middle in _even_middles(configuration, kind, params.middles):
        work = arrays.tables, kind, p, middle, relaxing, least, chosen, scratch
        for device in range(p, -1, -1):
            in_slices(side * side, until, partial(least_loaded, *work, device))
        start = start_of(configuration, kind, middle)
        if least[0][start] < best:
            best, ways = least[0][start], list(_ways(chosen, *start))
    return candidate_of(configuration, kind, arrays.options, ways) if ways else None


def _ways(chosen: Ints, x: int, y: int) -> Iterator[Way]:
    """Yield what each device in turn takes from the remainder (x, y); `least_loaded` explains `chosen`."""
    for device in range(len(chosen) - 1):
        new_x, new_y, one, two = chosen[device, x, y].tolist()
        yield new_x, new_y, one, two
        x, y = new_x, new_y


def _even_middles(configuration: Configuration, kind: int, most: int) -> list[int]:
    """Return the numbers of `middles` with the most even work of the two halves, at most `most`."""
    done = np.cumsum([0, *configuration.ticks])
    return sorted(middles(configuration, kind), key=lambda m: abs(2 * int(done[m]) - int(done[-1])))[:most]
