"""Turns of the search for schedules: beam searches over prefixes, each wider than the last one."""

from __future__ import annotations

from math import inf

from tightpipe.core.graph_arrays import arrays_of
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost

from .incumbent import Incumbent
from .prefixes import beam_search, is_whole
from .queues import queues_of
from .two_sides import Side, Turns
from .windows import windows_of


def beam_turns(instance: Instance, incumbent: Incumbent, share: float, side: Side) -> Turns:
    """Run beam searches for a lower cost, and offer their schedules to the incumbent.

    Parameters
    ----------
    instance
        A problem that solvers model. There are no turns if the W's of a device differ, because prefixes do
        not determine a schedule then.
    incumbent
        The schedule to improve.
    share
        The share of the side's time, 0 to 1, that the searches may take. A wider search begins only
        if it will probably fit into the rest of this share.
    side
        The limits of the turns.
    """
    queues = queues_of(instance)
    if not is_whole(arrays_of(instance), range(instance.devices)):
        return ""
    end = side.seconds + share * side.left if side.whole.limited else inf
    took, params = 0.0, side.whole.params.beams
    for width in params.widths:
        if incumbent.closed or side.seconds + params.longer * took > end:
            break
        windows = windows_of(queues, cost(incumbent.schedule) - 1, side.budget)
        if not windows.feasible:
            break
        begun = side.seconds
        budget = side.budget if side.whole.endless else side.budget.within(end - begun)
        incumbent.offer((yield from beam_search(queues, windows, width, budget)))
        yield params.uncounted
        took = side.seconds - begun
    return ""
