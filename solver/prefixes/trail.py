"""The parents of all prefixes of a search over all devices, and the schedule that is read from them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tightpipe.core.operation import OpKind
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule
from tightpipe.core.validate import validate

from ..queues import Queues, Word, order_of
from .few_devices import FewDevices, path_of
from .table_kernel import FREE, NEVER, Counts, Table, rows_of


class Trail:
    """The parent and the last operation of each prefix, from which a schedule is read in the end.

    Parameters
    ----------
    queues
        The instance.
    devices
        All devices of the instance, in the sequence in which the tables have columns for them.
    """

    def __init__(self, queues: Queues, devices: Sequence[int]) -> None:
        self._queues, self._devices = queues, devices
        self._steps: list[tuple[NDArray[np.int32], Counts, Counts]] = []

    @property
    def bytes_of_row(self) -> int:
        """About how many bytes the trail keeps of each row of a table."""
        return 6 + 2 * len(self._devices)

    def follow(self, table: Table) -> None:
        """Keep the parent, the queue and the numbers of pending W's of each row of the next table."""
        rows, devices = rows_of(table), len(self._devices)
        pending = table.times[:rows, FREE + devices : FREE + 2 * devices]
        # Because the trail keeps millions of rows, it stores each number in as few bytes as possible.
        parent, queue = table.parent[:rows].astype(np.int32), table.queue[:rows].astype(np.int16)
        self._steps.append((parent, queue, pending.astype(np.int16)))

    def schedule(self, problem: FewDevices, table: Table) -> Schedule | None:
        """Return the schedule that the cheapest complete prefix leads to; None if it breaks a rule."""
        rows, devices = rows_of(table), len(self._devices)
        free = table.times[:rows, FREE : FREE + devices]
        pending = table.times[:rows, FREE + devices : FREE + 2 * devices]
        cost = np.where(
            table.alive[:rows], (free + pending * problem.weight - problem.begin).max(axis=1), NEVER
        )
        row, path = int(cost.argmin()), []
        for parent, queue, left in reversed(self._steps):
            path.append((int(queue[row]), left[row]))
            row = int(parent[row])
        instance = self._queues.instance
        schedule = retime(instance, order_of(self._queues, self._words(path[::-1])))
        return None if validate(instance, schedule) else schedule

    def _words(self, path: list[tuple[int, Counts]]) -> list[Word]:
        """Return the words of all devices, from the queue of each operation and the W's left after it."""
        queues, along = self._queues, path_of(self._queues)
        words: list[Word] = [[] for _ in self._devices]
        weights = [self._weight_queue(device) for device in range(len(words))]
        begun = [0] * len(words)  # B's of each device so far
        for position, left in path:
            queue = queues.queues[along[position]]
            device = queue.device
            begun[device] += queue.kind is OpKind.B
            run = begun[device] - int(left[self._devices.index(device)])
            words[device] += [weights[device]] * (run - words[device].count(weights[device]))
            words[device].append(along[position])
        for device, q in enumerate(weights):
            words[device] += [q] * (queues.queues[q].count - words[device].count(q))
        return words

    def _weight_queue(self, device: int) -> int:
        (queue,) = (q for q in self._queues.on(device) if self._queues.queues[q].kind is OpKind.W)
        return queue
