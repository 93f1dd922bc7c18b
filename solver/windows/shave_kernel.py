"""Shaving, compiled: suppose one side of an open order, propagate, and keep the other side if that fails.

References
----------
P. Martin and D. B. Shmoys, "A new approach to computing optimal schedules for the job-shop scheduling
problem", IPCO 1996; J. Carlier and E. Pinson, "Adjustment of heads and tails for the job-shop problem",
European Journal of Operational Research 78 (1994).
"""

from __future__ import annotations

from typing import Any

from tightpipe.kernels.compiled import compiled

from .propagate_kernel import exclude, propagate, suppose
from .window_state_kernel import ON, clear, undo

_ALL = 2**60


@compiled
def shave(net: Any, box: Any, items: Any, steps: int, fruitful: Any) -> bool:
    """Shave the open orders of some items.

    Parameters
    ----------
    items
        Items in the sequence in which they are shaved.
    steps
        Items that the propagation of one supposition may work on: contradictions come early or never.
    fruitful
        Shape (items,), receives whether an order of the item was decided.

    Returns
    -------
    bool
        False on a contradiction: the box is empty.
    """
    for item in items:
        fruitful[item] = False
        device, own = net.device[net.queue[item]], net.slot[net.queue[item]]
        for slot in range(net.members.shape[1]):
            if slot == own or net.members[device, slot] < 0:
                continue
            for follows in (True, False):
                found = _shave_side(net, box, item, slot, follows, steps)
                if found < 0:
                    return False
                if found > 0:
                    fruitful[item] = True
    return True


@compiled
def _shave_side(net: Any, box: Any, item: int, slot: int, follows: bool, steps: int) -> int:
    """Shave from one side of the item until a supposition stands; -1 on a contradiction."""
    items, slots, half = len(net.queue), net.members.shape[1], len(box.value) // 2
    at = items + item * slots + slot
    decided = 0
    while box.value[at] < box.value[half + at]:
        box.state[ON] = 1
        suppose(net, box, item, slot, follows)
        stands = propagate(net, box, steps)
        clear(box)
        undo(box)
        if stands:
            break
        decided += 1
        exclude(net, box, item, slot, follows)
        if not propagate(net, box, _ALL):
            return -1
    return decided
