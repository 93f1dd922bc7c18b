"""Beam search: of all prefixes with equally many operations, only those that look best are extended.

These are the *beam*, and their number is its width.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from tightpipe.core.budget import Budget
from tightpipe.core.schedule import Schedule
from tightpipe.kernels.arrays import Floats, Ints

from ..queues import Queues
from ..windows import Windows
from .few_devices import FewDevices, few_devices, under_way
from .next_table import most_bytes, next_table
from .table_kernel import FREE, LAST, Table, first_table, rows_of
from .trail import Trail

_WAITING = 0.5  # weight of the time that microbatches wait, beside the time that devices idle
_MANY = 10**9  # prefixes, more than any table has room for
_TURN = 100_000  # prefixes that are kept between two yields
_PACE = 500_000  # about as many prefixes are kept per second on a usual machine


def beam_search(
    queues: Queues, windows: Windows, width: int, budget: Budget
) -> Generator[float, None, Schedule | None]:
    """Search a schedule inside windows by extending, of all prefixes with equally many operations, the best.

    Parameters
    ----------
    queues
        An instance in which a search over the prefixes of all devices finds schedules (`is_whole`).
    windows
        Feasible windows of the instance; their horizon is the largest cost that is of use.
    width
        How many prefixes are extended after each operation; fewer where they would take too much memory.
    budget
        Its deadline ends the search.

    Yields
    ------
    float
        Some times a second, so that others can take turns: about how many seconds the search has taken since
        the last time, the same in every run.

    Returns
    -------
    Schedule or None
        A valid schedule; None if no prefix that was extended has led to one inside the windows.

    Notes
    -----
    Prefixes with equally many operations are compared by the time that has been lost so far. This is the sum,
    over all devices, of the least time at which the device could end all of its work, and half of the sum,
    over all microbatches under way, of the time until the microbatch can go on. The search proves nothing.
    """
    devices = range(queues.instance.devices)
    problem = few_devices(queues, windows, devices)
    table = first_table(len(problem.device), len(devices), under_way(queues, devices))
    trail, kept = Trail(queues, devices), 0
    operations = problem.latest.size
    width = min(width, most_bytes(budget) // (trail.bytes_of_row * operations))
    for _ in range(operations):
        following = next_table(problem, table, _MANY, budget)
        if following is None:
            return None
        table = best_rows(problem, following, width)
        if rows_of(table) == 0:
            return None
        trail.follow(table)
        kept += rows_of(following)
        if kept >= _TURN:
            yield kept / _PACE
            kept = 0
    return trail.schedule(problem, table)


def best_rows(problem: FewDevices, table: Table, width: int) -> Table:
    """Return a table with the rows that have lost least time so far, at most `width`, to be extended."""
    rows = np.flatnonzero(table.alive[: rows_of(table)])
    if len(rows) > width:
        rows = rows[np.argpartition(_lost_time(problem, table, rows), width)[:width]]
    return table._replace(
        started=table.started[rows],
        times=table.times[rows],
        parent=table.parent[rows],
        queue=table.queue[rows],
        alive=table.alive[rows],
        counter=np.array([len(rows), *table.counter[1:]]),
    )


def _lost_time(problem: FewDevices, table: Table, rows: Ints) -> Floats:
    """Return the time in ticks that each of the rows has lost so far, up to a constant; shape (rows,)."""
    devices, microbatches = len(problem.weight), problem.latest.shape[1]
    times, left = table.times[rows], microbatches - table.started[rows].astype(np.int64)
    pending = times[:, FREE + devices : FREE + 2 * devices]
    # The W of a microbatch is still to be done where its B is, and where the B is done but the W pending.
    work = problem.duration + problem.backward * problem.weight[problem.device]
    ends = times[:, FREE : FREE + devices].sum(axis=1) + pending @ problem.weight + left @ work
    arrivals = times[:, FREE + 2 * devices :]
    waiting = np.maximum(0, arrivals - times[:, LAST, np.newaxis]).sum(axis=1)
    return np.asarray(ends + _WAITING * waiting, np.float64)
