"""Open orders: the pairs of items that may still run in either sequence in a schedule within a horizon.

`queues` defines items and ranks, and `windows.windows` defines horizons and windows. The order of two items
of one device is *open* if the windows do not decide which of them runs first.
"""

from __future__ import annotations

from .queues import Queues
from .windows import Windows


class OpenOrders:
    """The items, the pairs of queues and the open orders, as lists for the loops that build a model.

    Parameters
    ----------
    queues
        The problem.
    windows
        The windows, which hold the orders that are decided already.

    Attributes
    ----------
    queues
        The queues of the problem, as a tuple.
    first
        The first item of each queue, and at the end the number of all items.
    on
        For each device, the indices of its queues.
    """

    def __init__(self, queues: Queues, windows: Windows) -> None:
        self.queues, self.windows = queues.queues, windows
        self.first: list[int] = windows.arrays.graph.first.tolist()
        self.on = [queues.on(d) for d in range(queues.instance.devices)]
        self._local: list[int] = windows.arrays.graph.queues["local"].tolist()
        self._before: list[list[int]] = windows.before.tolist()
        self._after: list[list[int]] = windows.after.tolist()

    def items(self, q: int) -> range:
        """Return the items of queue q, in sequence."""
        return range(self.first[q], self.first[q + 1])

    def pairs(self) -> list[tuple[int, int]]:
        """Return every pair (x, y) of queues of one device with x < y."""
        return [(x, y) for on in self.on for x in on for y in on if x < y]

    def open_ranks(self, i: int, y: int) -> range:
        """Return the ranks in queue y of the items whose order with item i is open.

        Queue y is another queue of the device of item i.
        """
        k = self._local[y]
        return range(self._before[i][k], self._after[i][k])
