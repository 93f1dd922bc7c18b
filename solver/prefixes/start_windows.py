"""Windows of the starts of F's and B's, whatever joint operations, absent operations and step there are.

A prefix is extended by whole operations, and needs to know when one of them may start. The windows of an
instance with joint operations (`windows.window_state_kernel`) are about their items, which may start later. So windows
come from narrower instances (`bounds.relaxed`), in which an F or B of any schedule keeps its start, or starts
later within the operation of which it is a part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph_arrays import GraphArrays, arrays_of, units_of
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.params.budget import UNLIMITED, Budget

from ..bounds.relaxed import around, cut_apart
from ..queues import queues_of
from ..windows import Windows, windows_of


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
    Any schedule of the instance gives one of each narrower instance. There a B or BW becomes a B that starts
    with it, and a pair an F and a B in either sequence, so that both may start with the pair. All of its
    operations lie between the ticks `before` and T less `after` of the step, where `around` gives the two.
    """
    graph = arrays_of(instance)
    before, after = around(instance)
    devices = range(instance.devices)
    least = np.full(len(graph.queue), -(2**60))
    most, begin = -least, np.full(len(devices), 2**60)
    for narrow in cut_apart(instance):
        windows = windows_of(queues_of(narrow), target - before - after, budget)
        if not windows.feasible:
            return StartWindows(graph, False, least, most, begin, target, 1)
        _meet(instance, narrow, windows, before, least, most)
        begin = np.minimum(begin, windows.frames[1])
    if instance.barrier is not None:
        forward = graph.nodes[graph.nodes["kind"] == OpKind.F]
        for node in forward:
            own = slice(node["first"], node["first"] + node["count"])
            least[own] = np.maximum(least[own], node["ready"])
        begin = -np.array([_after_last(instance, device) for device in devices])
    rounds = instance.iterations if instance.flush else 1
    return StartWindows(graph, True, least, most, begin, target, rounds)


def _meet(
    instance: Instance, narrow: Instance, windows: Windows, shift: int, least: Ints, most: Ints
) -> None:
    """Narrow the windows of the instance by those of a narrower one, whose ticks count from `shift`.

    Classes that differ by what the narrower instance leaves out are one class there. So of its items, the
    k-th of such a class comes as the k-th or later, and as many follow it as in its own class, or more.
    """
    graph, other = arrays_of(instance), windows.arrays.graph
    units = units_of(graph)
    for node in graph.nodes[graph.queues["kind"][graph.nodes["queue"]] != OpKind.W]:
        mb_class = narrow.mb_class(int(units[node["mb_class"], 0]))
        there = other.nodes[other.node[node["kind"], mb_class, node["stage"]]]
        own, first = slice(node["first"], node["first"] + node["count"]), there["first"]
        last = first + there["count"]
        early, late = (
            windows.earliest[first : first + node["count"]],
            windows.latest[last - node["count"] : last],
        )
        least[own], most[own] = np.maximum(least[own], early + shift), np.minimum(most[own], late + shift)


def _after_last(instance: Instance, device: int) -> int:
    """Return the least ticks from the last operation of a device to the end of its optimizer."""
    step = instance.barrier
    held = {s for route in instance.placement.routes for s, d in enumerate(route) if d == device}
    return min(step.reduce[s] for s in held) + step.optimizer[device]  # type: ignore[union-attr,index]
