"""The table of the prefixes that have started equally many operations, with a hash index, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tightpipe.kernels.arrays import Bools, Ints, Records
from tightpipe.kernels.compiled import compiled_inline
from tightpipe.model.graph import NO_LIMIT

Counts = NDArray[np.int16]


class Table(NamedTuple):
    """Prefixes with equally many operations, as rows of arrays; rows are added, and never removed.

    Q, P and R are the numbers of queues, of devices, and of microbatches that can be under way. Each path has
    some of the last R columns of `times`. If it has r of them, the (m modulo r)-th belongs to the m-th
    microbatch of the path.
    """

    started: Counts  # (rows, Q) number of items of each queue that have started
    times: Ints  # (rows, 2 + 2P + R) the columns stand below
    parent: Ints  # (rows,) the prefix without the last operation, as a row of the table before
    queue: Ints  # (rows,) queue of that operation
    partner: Ints  # (rows,) queue of the backward that runs jointly with it, see below; -1 if it runs alone
    alive: Bools  # (rows,) false where another row dominates this one
    other: Ints  # (rows,) the next row in the linked list of rows with equal `started`, -1 at its end
    bucket: Ints  # (2**k,) hash index: the first row of one such list, -1 where there is none
    new_started: Ints  # (Q,) `started` of the row that is being made
    new_times: Ints  # (2 + 2P + R,) `times` of the row that is being made
    counter: Ints  # (2,) see below


# Columns of `times`. The first one is the start of the last operation in ticks, the second one the least
# cost that the starts so far allow (`FewDevices.floor`). Then follow, for each device, the tick from which it
# is free, and then, for each device, the number of W's that it has yet to run for the B's that have started.
# The rest is, for each microbatch under way, the tick from which its next operation can start; the other
# columns repeat the first one.
LAST, COST, FREE = 0, 1, 2

# An operation that runs jointly has a `partner`: that of a B is the queue of the B itself, which stands for
# the W in its fused backward; that of an F is the queue of the B whose fused backward it runs together with.
ALONE = -1

# Positions in `counter`:
ROWS, COMPLETE = 0, 1  # number of rows, and the least cost in ticks of a prefix that has started everything

FULL = -1  # stands for the number of rows where the table has no room for another row


def empty_table(rows: int, queues: int, devices: int, under_way: int) -> Table:
    """Return an empty table with room for `rows` rows."""
    width = FREE + 2 * devices + under_way
    return Table(
        started=np.empty((rows, queues), np.int16),
        times=np.empty((rows, width), np.int64),
        parent=np.empty(rows, np.int64),
        queue=np.empty(rows, np.int64),
        partner=np.empty(rows, np.int64),
        alive=np.empty(rows, np.bool_),
        other=np.empty(rows, np.int64),
        bucket=np.full(1 << (2 * rows).bit_length(), -1, np.int64),
        new_started=np.empty(queues, np.int64),
        new_times=np.empty(width, np.int64),
        counter=np.array([0, NO_LIMIT]),
    )


def bytes_of_row(queues: int, devices: int, under_way: int) -> int:
    """Return about how many bytes a row takes, with its share of the hash index."""
    return 2 * queues + 8 * (FREE + 2 * devices + under_way) + 68


def rows_of(table: Table) -> int:
    """Return the number of rows, also of those that another row dominates."""
    return int(table.counter[ROWS])


@compiled_inline
def keep_new_row(table: Table, devices: Records, row: int, queue: int, partner: int) -> bool:
    """Add the new row to the table unless another one dominates it; return False if there is no room.

    Rows that the new row dominates are no longer alive. `devices` are those of the problem, `row` is the
    parent of the new row, `queue` is the queue of its last operation, and `partner` is that in the table.
    """
    bucket = _bucket_of(table)
    other, previous = table.bucket[bucket], -1
    while other >= 0:
        better, worse = _compare(table, devices, other)
        if not worse:
            return True
        if not better:
            table.alive[other] = False
            if previous >= 0:
                table.other[previous] = table.other[other]
            else:
                table.bucket[bucket] = table.other[other]
        else:
            previous = other
        other = table.other[other]
    new = table.counter[ROWS]
    if new == len(table.alive):
        return False
    for q in range(len(table.new_started)):
        table.started[new, q] = table.new_started[q]
    for column in range(len(table.new_times)):
        table.times[new, column] = table.new_times[column]
    table.parent[new], table.queue[new], table.partner[new] = row, queue, partner
    table.alive[new] = True
    table.other[new] = table.bucket[bucket]
    table.bucket[bucket] = new
    table.counter[ROWS] += 1
    return True


@compiled_inline
def _compare(table: Table, devices: Records, other: int) -> tuple[bool, bool]:
    """Return whether the other row is earlier somewhere, and whether it is later somewhere, than the new row.

    If a device has more W's left in one row than in the other, it first has to run the surplus. So when a row
    is tested for being no later than the other one, the ticks of its surplus are added to the time from which
    the device is free.
    """
    number, new, old = len(devices), table.new_times, table.times[other]
    better = old[LAST] < new[LAST] or old[COST] < new[COST]
    worse = old[LAST] > new[LAST] or old[COST] > new[COST]
    for d in range(number):
        more = old[FREE + number + d] - new[FREE + number + d]
        better |= old[FREE + d] < new[FREE + d] + max(0, -more) * devices[d].weight
        worse |= old[FREE + d] + max(0, more) * devices[d].weight > new[FREE + d]
        if better and worse:
            return True, True
    for column in range(FREE + 2 * number, len(new)):
        better |= old[column] < new[column]
        worse |= old[column] > new[column]
        if better and worse:
            break
    return bool(better), bool(worse)


@compiled_inline
def _bucket_of(table: Table) -> int:
    """Return the bucket of the rows that have started the same operations as the new row, or a free one."""
    mask, mixed = len(table.bucket) - 1, 0
    for queue in range(len(table.new_started)):
        mixed = (mixed ^ table.new_started[queue]) * 0x9E3779B97F4A7C1
        mixed ^= mixed >> 29
    bucket = mixed & mask
    while table.bucket[bucket] >= 0 and not _starts_the_same(table, table.bucket[bucket]):
        bucket = (bucket + 1) & mask
    return int(bucket)


@compiled_inline
def _starts_the_same(table: Table, row: int) -> bool:
    for queue in range(len(table.new_started)):
        if table.started[row, queue] != table.new_started[queue]:
            return False
    return True
