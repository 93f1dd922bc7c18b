"""The table of the empty prefix, and the step from one table to that of prefixes with one operation more."""

from __future__ import annotations

from collections.abc import Callable

from tightpipe.core.budget import Budget

from .extend_kernel import extend
from .few_devices import FewDevices
from .table_kernel import FREE, FULL, ROWS, Table, bytes_of_row, empty_table, rows_of


def first_table(problem: FewDevices) -> Table:
    """Return the table with the one prefix in which nothing has started.

    Times count from the start of one device's frame, and other devices may start before it. So the prefix has
    the least time that an operation can start at.
    """
    under_way = int(problem.paths["columns"].sum())
    table = empty_table(1, len(problem.queues), len(problem.devices), under_way)
    table.started[:], table.times[:], table.alive[:], table.counter[ROWS] = 0, 0, True, 1
    table.times[:, : FREE + len(problem.devices)] = problem.earliest.min()
    return table


def next_table(
    problem: FewDevices,
    before: Table,
    most: int,
    budget: Budget,
    moot: Callable[[], bool] = lambda: False,
) -> Table | None:
    """Return the prefixes with one operation more; None if they are too many, or if the search has to end.

    Parameters
    ----------
    problem
        The devices, and the windows.
    before
        Prefixes with equally many operations.
    most
        The most prefixes that the next table may keep. If there are more, the result is None.
    budget, moot
        What ends the search, as in `search_prefixes`.
    """
    queues, devices, params = len(problem.queues), len(problem.devices), budget.params.prefixes
    under_way = before.times.shape[1] - FREE - 2 * devices
    most = min(most, most_bytes(budget) // bytes_of_row(queues, devices, under_way))
    room = min(most, max(params.least_room, params.room * rows_of(before)))
    while room > 0:
        after = empty_table(room, queues, devices, under_way)
        for begin in range(0, rows_of(before), params.slice):
            if budget.left <= 0 or moot():
                return None
            if extend(problem, before, begin, min(rows_of(before), begin + params.slice), after) == FULL:
                break
        else:
            return after
        room = min(most, 2 * room) if room < most else 0
    return None


def most_bytes(budget: Budget) -> int:
    """Return the most bytes of a table or a trail; no more than an eighth of the cap on memory."""
    most, cap = budget.params.prefixes.most_bytes, budget.max_memory
    return most if cap is None else min(most, int(cap * 1e9 / 8))
