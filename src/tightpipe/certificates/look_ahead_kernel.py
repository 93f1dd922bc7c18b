"""Look-ahead, compiled: what follows if one or the other order of two operations is supposed.

An *item* is an operation in a queue of alike operations of one device, which run in sequence. The order of
two items of a device is *open* if the windows do not decide which of them runs first. A *supposition* is
about an item and another queue of its device. It says that the items of that queue whose order with the item
is open all follow it, or that they all precede it.
"""

from __future__ import annotations

from tightpipe.solver.windows.agenda_kernel import clear, suppose
from tightpipe.solver.windows.propagate_kernel import propagate
from tightpipe.solver.windows.window_state_kernel import RECORDED, RECORDING, HorizonArrays, WindowState, undo

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled

REFUTED = -1
NOT_OPEN = -2


@compiled
def fails(arrays: HorizonArrays, state: WindowState, item: int, k: int, follows: bool, steps: int) -> bool:
    """Return whether a supposition leads to a contradiction; the state stays as it was.

    The parameters are those of `left_under`.
    """
    return left_under(arrays, state, item, k, follows, steps) == REFUTED


@compiled
def left_under(
    arrays: HorizonArrays, state: WindowState, item: int, k: int, follows: bool, steps: int
) -> int:
    """Return how many orders stay open under a supposition, or `REFUTED` if it leads to a contradiction.

    The result counts, for each item, the items of its device that neither surely precede nor surely follow
    the item. So an open order counts at both of its items, and every item counts itself once.

    - `arrays`, `state`: the queues, and windows to which all rules have been applied; both are unchanged
      afterwards.
    - `item`, `k`, `follows`: the supposition: if `follows`, the items of the k-th queue of the item's device
      whose order with the item is open all follow it; otherwise they all precede it.
    - `steps`: the number of items that the propagation may work on.
    """
    graph = arrays.graph
    state.counter[RECORDING], state.counter[RECORDED] = 1, 0
    suppose(arrays, state, item, k, follows)
    left = REFUTED
    if propagate(arrays, state, steps):
        left = 0
        for i in range(len(state.agenda)):
            for other in range(graph.devices[graph.queues[graph.queue[i]].device].queues):
                left += state.after[i, other] - state.before[i, other]
    clear(state)
    undo(state)
    return left


@compiled
def look(arrays: HorizonArrays, state: WindowState, steps: int, found: Ints) -> None:
    """Write to `found` what `left_under` returns for every supposition.

    `found` has the shape (N, M, 2), for N items and at most M queues on a device. ``found[item, k, 1]`` is
    for the supposition that the items of the k-th queue of the item's device whose order with the item is
    open follow it, and ``found[item, k, 0]`` for the supposition that they precede it. Both are `NOT_OPEN` if
    no such order is open.
    """
    graph = arrays.graph
    for item in range(len(state.agenda)):
        queue = graph.queue[item]
        for k in range(found.shape[1]):
            exists = k < graph.devices[graph.queues[queue].device].queues and k != graph.queues[queue].local
            is_open = exists and state.before[item, k] < state.after[item, k]
            for side in range(2):
                found[item, k, side] = NOT_OPEN
                if is_open:
                    found[item, k, side] = left_under(arrays, state, item, k, side == 1, steps)
