"""Pairs: how long an F and a BW take that run together, and the most that pairs can save."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.errors import InputError, check_int, is_list, per_item, plain
from .placement import Placement, Route

MOST_STAGES = 256
"""The most stages of one device whose pairs have times of their own."""
Table = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def held_by(route: Route, device: int) -> tuple[int, ...]:
    """Return the stages of a route that are on a device."""
    return tuple(stage for stage, home in enumerate(route) if home == device)


def expand_overlapped(value: Any, placement: Placement) -> tuple[int, ...] | None:
    """Return the ticks of a pair on each device; None stays None."""
    if value is None:
        return None
    ticks = per_item("overlapped", value, placement.devices, "device", 1)
    _check_number("overlapped", placement)
    return ticks


def expand_pairs(value: Any, placement: Placement, both: Sequence[bool]) -> Table | None:
    """Return the ticks of an F of each stage (rows) with a BW of each stage (columns); None stays None.

    An entry does not matter where no device has both stages, or where the second stage has no BW. Raise an
    InputError if the value is no matrix of one row and one column per stage, or has an entry below 0, or one
    that counts below 1.

    - `value`: the matrix as the user gives it.
    - `placement`: the placement, which says which stages share a device.
    - `both`: whether each stage has a BW.
    """
    if value is None:
        return None
    stages = placement.stages
    if not is_list(value) or len(value) != stages:
        given = f"has {len(value)} rows, " if is_list(value) else ""
        rule = f"{given}must have a row for the F of each stage: {stages}"
        raise InputError(rule, key="pairs", value=list(value) if is_list(value) else value)
    _check_number("pairs", placement)
    counts = np.zeros((stages, stages), bool)
    for device in range(placement.devices):
        held = list(placement.stages_on(device))
        counts[np.ix_(held, held)] = True
    counts &= np.array(both, bool)
    table = []
    for f, row in enumerate(map(plain, value)):
        key = f"pairs[{f}]"
        if not is_list(row):
            raise InputError(f"must be a row of {stages} integers", key=key, value=row)
        ticks = per_item(key, row, stages, "stage", 0)
        for b in np.flatnonzero(counts[f]).tolist():
            check_int(f"{key}[{b}]", ticks[b], 1)
        table.append(ticks)
    return tuple(table)


def _check_number(key: str, placement: Placement) -> None:
    most = max(len(placement.stages_on(d)) for d in range(placement.devices))
    if most > MOST_STAGES:
        rule = f"times of pairs need at most {MOST_STAGES} stages per device"
        raise InputError(rule, key=key, value=most)


@lru_cache(maxsize=256)
def largest_savings(savings: Table) -> tuple[int, ...]:
    """Return what the first pair saves, what a second one adds, and so on, as long as it is more than 0.

    - `savings`: what an F of each row saves with a backward of each column. Each row and each column is in
      one pair at most.

    Returns
    -------
    tuple of int
        The sum of the first k numbers is the most that k pairs save. No number is larger than the one before.

    Notes
    -----
    This is a matching of largest weight, which grows by one pair at a time along a path of largest gain: new
    pairs along it alternate with pairs that are given up. The gains of successive paths do not rise. If every
    row and column stands for n equal operations, each number holds for n pairs: fractions 1/n of operations
    gain nothing, as the vertices of the polytope of matchings with at most k pairs are integral.
    """
    gain = np.array(savings, np.int64).reshape(len(savings), -1)
    rows, columns = gain.shape
    mate, free = np.full(columns, -1), np.ones(rows, bool)  # the row of each column; which rows have none
    found: list[int] = []
    while free.any():
        best, via = _best_paths(gain, mate, free)
        ends = np.where(mate < 0, best, -1)
        if columns == 0 or ends.max() <= 0:
            break
        column = int(ends.argmax())
        found.append(int(ends[column]))
        while column >= 0:  # each column on the path takes its new row, whose old column is next
            row = int(via[column])
            old = -1 if free[row] else int(np.flatnonzero(mate == row)[0])
            mate[column], free[row] = row, False
            column = old
    return tuple(found)


_NOTHING = -(2**62)


def _best_paths(gain: Any, mate: Any, free: Any) -> tuple[Any, Any]:
    """Return for each column the most that a path from a free row to it gains, and the last row on it.

    Rows are set only where the gain grows, so that the rows of a path never go in a circle.
    """
    reached = np.where(free, 0, _NOTHING)  # the most that is gained on the way to each row
    best, via = np.full(len(mate), _NOTHING), np.full(len(mate), -1)
    (taken,) = np.nonzero(mate >= 0)
    while True:
        through = np.where(reached[:, None] > _NOTHING, reached[:, None] + gain, _NOTHING)
        rows = through.argmax(axis=0)
        gained = through[rows, np.arange(len(mate))]
        better = gained > best
        if not better.any():
            return best, via
        best, via = np.where(better, gained, best), np.where(better, rows, via)
        onward = best[taken] - gain[mate[taken], taken]  # the pair of the column is given up
        reached[mate[taken]] = np.maximum(
            reached[mate[taken]], np.where(best[taken] > _NOTHING, onward, _NOTHING)
        )
