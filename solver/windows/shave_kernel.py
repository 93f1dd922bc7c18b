"""Shaving, compiled: suppose one side of an open order, propagate, and keep the other side if that fails.

References
----------
P. Martin and D. B. Shmoys, "A new approach to computing optimal schedules for the job-shop scheduling
problem", IPCO 1996; J. Carlier and E. Pinson, "Adjustment of heads and tails for the job-shop problem",
European Journal of Operational Research 78 (1994).
"""

from __future__ import annotations

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.kernels.compiled import compiled

from .agenda_kernel import clear
from .decide_kernel import exclude, suppose
from .propagate_kernel import propagate
from .queue_arrays import QueueArrays
from .window_state_kernel import RECORDING, WindowState, undo

_ALL = 2**60


@compiled
def shave(arrays: QueueArrays, state: WindowState, items: Ints, steps: int, fruitful: Bools) -> bool:
    """Shave the open orders of some items.

    Parameters
    ----------
    items
        Items in the sequence in which they are shaved.
    steps
        Items that the propagation of one supposition may work on: contradictions come early or never.
    fruitful
        Shape (all items,), receives whether an order of the item was decided.

    Returns
    -------
    bool
        False on a contradiction: the windows hold no schedule.
    """
    for item in items:
        fruitful[item] = False
        queue = arrays.queue[item]
        for k in range(arrays.held[arrays.device[queue]]):
            if k == arrays.local[queue]:
                continue
            for follows in (True, False):
                found = _shave_side(arrays, state, item, k, follows, steps)
                if found < 0:
                    return False
                if found > 0:
                    fruitful[item] = True
    return True


@compiled
def _shave_side(arrays: QueueArrays, state: WindowState, item: int, k: int, follows: bool, steps: int) -> int:
    """Shave the orders with the device's k-th queue from one side until a supposition stands.

    Return how many orders that has decided, -1 on a contradiction.
    """
    decided = 0
    while state.before[item, k] < state.after[item, k]:
        state.counter[RECORDING] = 1
        suppose(arrays, state, item, k, follows)
        stands = propagate(arrays, state, steps)
        clear(state)
        undo(state)
        if stands:
            break
        decided += 1
        exclude(arrays, state, item, k, follows)
        if not propagate(arrays, state, _ALL):
            return -1
    return decided
