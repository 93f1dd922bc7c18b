"""Propagation and shaving, compiled: apply the rules until no window narrows; suppose one order.

Each rule follows from the model, so a schedule of cost at most the horizon that lies in the windows before a
rule is applied also lies in them afterwards. The rules for the orders of an item come first, then those for
its times. If the work ends while rules could still find something, the windows are wider than they could be,
but they hold.

*Shaving* proves a decision by contradiction. If no schedule lies in the windows once an item is supposed to
precede another one, then it follows that item in every schedule of cost at most the horizon.

References
----------
P. Martin and D. B. Shmoys, "A new approach to computing optimal schedules for the job-shop scheduling
problem", IPCO 1996; J. Carlier and E. Pinson, "Adjustment of heads and tails for the job-shop problem",
European Journal of Operational Research 78 (1994).
"""

from __future__ import annotations

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.kernels.compiled import compiled, compiled_inline

from .agenda_kernel import clear, exclude, pop, suppose
from .orders_kernel import narrow_orders
from .times_kernel import narrow_times
from .window_state_kernel import LENGTH, RECORDED, RECORDING, STEPS, HorizonArrays, WindowState, undo


@compiled
def propagate(arrays: HorizonArrays, state: WindowState, steps: int) -> bool:
    """Apply the rules to at most `steps` items of the agenda; return False on a contradiction.

    The work also ends, without a contradiction, when the trail has no room for the changes of one more item.
    """
    possible, left = True, steps
    while possible and left > 0 and state.counter[LENGTH] > 0 and _is_room(state):
        left -= 1
        state.counter[STEPS] += 1
        item = pop(state)
        possible = narrow_orders(arrays, state, item) and narrow_times(arrays, state, item)
    return possible


@compiled_inline
def _is_room(state: WindowState) -> bool:
    """Return whether the trail has room to record all that the rules of one more item may change."""
    room = len(state.trail) - 4 * len(state.agenda)
    return bool(state.counter[RECORDING] == 0 or state.counter[RECORDED] <= room)


_ALL = 2**60


@compiled
def shave(
    arrays: HorizonArrays, state: WindowState, items: Ints, steps: int, fruitful: Bools, exhausted: Bools
) -> bool:
    """Shave the open orders of some items.

    Return False on a contradiction, when no schedule lies in the windows.

    - `arrays`, `state`: the queues, and the windows, which are narrowed in place.
    - `items`: the items, in the sequence in which they are shaved.
    - `steps`: the number of items that the propagation of one supposition may work on. It can be small,
      because most contradictions come early.
    - `fruitful`: shape (N,) for all N items; receives, for each shaved item, whether one of its orders was
      decided.
    - `exhausted`: shape (N,); true where it is known that no supposition about the item is refuted in these
      windows, however large `steps` is. Such an item is passed over until this call decides an order.
      Receives the new values of the items in `items`; a decision about a later item makes them out of date.
    """
    graph = arrays.graph
    changed = False
    for item in items:
        fruitful[item] = False
        if exhausted[item] and not changed:
            continue
        exhausted[item] = True
        queue = graph.queue[item]
        for k in range(graph.devices[graph.queues[queue].device].queues):
            if k == graph.queues[queue].local:
                continue
            for follows in (True, False):
                found, ended = _shave_side(arrays, state, item, k, follows, steps)
                if found < 0:
                    return False
                if found > 0:
                    changed = fruitful[item] = True
                if found > 0 or not ended:
                    exhausted[item] = False
    return True


@compiled
def _shave_side(
    arrays: HorizonArrays, state: WindowState, item: int, k: int, follows: bool, steps: int
) -> tuple[int, bool]:
    """Shave the open orders of an item and the device's k-th queue until a supposition is not refuted.

    If `follows` is true, each supposition is that all open items of the queue follow the item; otherwise,
    that all of them precede it.

    Returns
    -------
    int
        The number of suppositions that were refuted; -1 if no schedule lies in the windows.
    bool
        Whether the propagation of the supposition that was not refuted came to its end. If so, no larger
        number of steps refutes it.
    """
    decided, ended = 0, True
    while state.before[item, k] < state.after[item, k]:
        state.counter[RECORDING] = 1
        suppose(arrays, state, item, k, follows)
        stands = propagate(arrays, state, steps)
        ended = state.counter[LENGTH] == 0
        clear(state)
        undo(state)
        if stands:
            break
        decided += 1
        exclude(arrays, state, item, k, follows)
        if not propagate(arrays, state, _ALL):
            return -1, ended
    return decided, ended
