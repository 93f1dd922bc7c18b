"""The search over prefixes, which finds a cost below which a few devices cannot do all of their work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tightpipe.core.budget import Budget
from tightpipe.core.schedule import Schedule

from ..queues import Queues
from ..windows import Windows
from .few_devices import few_devices, is_whole, operations_of
from .next_table import first_table, next_table
from .table_kernel import COMPLETE, rows_of
from .trail import Trail


@dataclass(frozen=True, slots=True)
class PrefixSearch:
    """What a search over the prefixes of a few devices has found.

    Parameters
    ----------
    bound
        A proven lower bound of the cost, in ticks. The bound is at most one tick above the horizon. If it is
        above, the horizon is refuted. None if the search was ended early.
    extended
        The number of prefixes that were kept; the work of the search is in proportion to it.
    schedule
        A valid schedule, if the search was about all devices and found that the horizon is possible.
    """

    bound: int | None
    extended: int
    schedule: Schedule | None = None


def search_prefixes(
    queues: Queues,
    windows: Windows,
    devices: Sequence[int],
    budget: Budget,
    most: int,
    moot: Callable[[], bool] = lambda: False,
) -> PrefixSearch:
    """Search all prefixes of the schedules of a few devices that lie inside windows.

    Parameters
    ----------
    queues
        The queues of an instance without operations that overlap and without flushes.
    windows
        Feasible windows of the instance; their horizon is the supposed cost T.
    devices
        Numbers of the devices, each once.
    budget
        Its deadline ends the search, and its cap on memory limits the tables.
    most
        The most prefixes that are kept. The search ends early if there are more.
    moot
        Called several times a second; the search ends when `moot` returns True, as the answer is of no use
        then.

    Returns
    -------
    PrefixSearch
        Its bound holds for every schedule of the instance.

    Notes
    -----
    Suppose that a schedule costs at most T, and runs every queue first in, first out, as some cheapest
    schedule does (`tightpipe.core.graph`). Between classes of microbatches nothing is supposed: each class
    has queues of its own, and the next F or B may be of any of them. Let the schedule's F's and B's on the
    devices be started one after another, in the sequence of their start times. After each of them the table
    holds a prefix with equally many operations of each queue, from which the rest of the schedule can follow
    at times that are no later:

    - The prefix says all that the rest depends on: what has started, and so the memory of each device; from
      when each device is free; how many W's it has pending, which are alike or count as alike whatever
      their class; and from when each microbatch of each class can go on.
    - Extending this prefix by the schedule's next operation is one of the ways that `extend` tries. It lies
      inside the windows, since the schedule does, and since the prefix is at most as late.
    - If the schedule runs fewer W's before the operation than would fit into the idle time before it, some of
      its later W's may as well run in that time. They free their memory earlier, and nothing else moves.
    - If an operation that takes no memory fits into that idle time, it may as well run there. This makes
      another schedule with the same prefix, in which the sum of the starts is smaller, so that it cannot be
      repeated forever.
    - Where a prefix is dropped because another one dominates it, the rest can follow the other one.

    So a schedule that costs at most T leads to a prefix that has started everything, whose devices, begun at
    the largest starts of their frames, end no later than T. If there is none, every schedule costs at least
    T + 1. Otherwise every schedule costs at least the least cost that such a prefix allows. For at a lower
    cost the windows are no wider and the frames begin no later; the prefix of a schedule of that cost would
    lie in these windows, too.
    """
    problem = few_devices(windows, devices)
    table = first_table(problem)
    trail = Trail(queues, problem) if is_whole(windows.arrays.graph, devices) else None
    extended = 0
    for _ in range(operations_of(problem)):
        following = next_table(problem, table, most - extended, budget, moot)
        if following is None:
            return PrefixSearch(None, extended)
        table = following
        extended += rows_of(table)
        if rows_of(table) == 0:
            return PrefixSearch(problem.horizon + 1, extended)
        if trail is not None:
            trail.keep(table)
    bound = min(problem.horizon + 1, int(table.counter[COMPLETE]))
    return PrefixSearch(bound, extended, None if trail is None else trail.schedule(table))
