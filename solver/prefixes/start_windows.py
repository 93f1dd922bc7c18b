"""Windows of the starts of F's and B's, whatever joint operations, absent operations and step there are."""

from __future__ import annotations

from typing import NamedTuple

from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph_arrays import GraphArrays, arrays_of
from tightpipe.model.instance import Instance
from tightpipe.params.budget import UNLIMITED, Budget

from ..queues import queues_of
from ..windows import windows_of


class StartWindows(NamedTuple):
    """The windows of the F's and B's of an instance in all schedules of at most a given cost.

    There are N items, of which a W has no window, and p devices. A W that waits for no B counts as a B.
    """

    graph: GraphArrays
    feasible: bool  # false if it is proven that no schedule costs so little; the arrays mean nothing then
    earliest: Ints  # (N,) least start in ticks
    latest: Ints  # (N,) largest start in ticks
    begin: Ints  # (p,) each device ends its operations within a horizon from this tick
    horizon: int  # the supposed cost in ticks
    rounds: int  # number of iterations that a flush divides; 1 if there is none


def start_windows(instance: Instance, target: int, budget: Budget = UNLIMITED) -> StartWindows:
    """Return the windows of the F's and B's of an instance in all schedules that cost at most a target.

    - `instance`: the problem; `bounds.relaxed.is_searchable` is true for it.
    - `target`: the supposed cost in ticks.
    - `budget`: its deadline ends the work. The windows hold even then; they are only wider than they could
      be.

    Notes
    -----
    A prefix is extended by whole operations, and the windows are about the items of joint operations
    (`windows.cut_times`). An item may end with its operation, but also begin with it: a BW is long enough for
    its B and then its W, and a pair for its F and then the BW, or for the BW and then its F. What they wait
    for is there when the operation starts, what waits for them waits until it ends, and they free memory no
    later. So for each operation some schedule of items that costs no more has the F, or the B, at its start.

    After the last operation of a device comes at least one of its reductions, and its optimizer.
    """
    graph, windows = arrays_of(instance), windows_of(queues_of(instance), target, budget)
    on = [graph.queues["device"] == d for d in range(instance.devices)]
    begin = windows.frames[1] - [windows.arrays.tail[mine].min() for mine in on]
    rounds = instance.iterations if instance.flush else 1
    return StartWindows(graph, windows.feasible, windows.earliest, windows.latest, begin, target, rounds)
