"""Propagation, compiled: apply the rules that narrow windows until none of them finds anything more.

Each rule follows from the model, so a schedule of cost at most the horizon that lies in the windows before a
rule is applied also lies in them afterwards. The rules for the orders of an item come first, then those for
its times. If the work ends while rules could still find something, the windows are wider than they could be,
but they hold.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled, compiled_inline

from .agenda_kernel import pop
from .horizon_arrays import HorizonArrays
from .orders_kernel import narrow_orders
from .times_kernel import narrow_times
from .window_state_kernel import LENGTH, RECORDED, RECORDING, STEPS, WindowState


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
