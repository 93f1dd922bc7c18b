"""Least ticks between the start or end of one device's frame and certain operations of a second device.

The second device is called the worker. The ticks are lengths of paths of a single microbatch. A frame is an
interval as long as the cost, in which all operations of a device lie. For the makespan all devices share one
frame. In arrays of shape (frames, workers), each row stands for the frame of one device, and each column for
one device as the worker.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.placement import Route
from tightpipe.kernels.arrays import Ints

from .held import most_forwards
from .routes import earliest_starts, least_time


def most_before(instance: Instance, first_b: Ints) -> Ints:
    """Return the most work, in ticks, that each worker can have done `first_b` ticks after the frame's start.

    Both arrays have the shape (frames, workers). No B of the worker starts in the first `first_b` ticks of
    the frame. So this work consists of F's. Together they fit into the worker's memory, and into the time
    from the worker's earliest start on. A worker whose first stage comes before the first stage of the
    frame's device may start before the frame does. Then only memory limits its work.
    """
    held = np.array([most_forwards(instance, worker) for worker in range(instance.devices)])
    begin = shortest(instance, _until_first_forward)
    return np.where(begin >= 0, np.minimum(held, first_b - begin), held)


def shortest(instance: Instance, ticks_on: Callable[[Instance, Route], Ints]) -> Ints:
    """Return the least, over all routes, of the ticks that `ticks_on` returns, shape (frames, workers)."""
    return np.asarray(np.min([ticks_on(instance, route) for route in instance.placement.routes], axis=0))


def _until_first_forward(instance: Instance, route: Route) -> Ints:
    """Return the least ticks from the start of each frame to each worker's first F, shape (frames, workers).

    A negative entry means that the worker may start before the frame: the worker's first stage on the route
    comes before the first stage of the frame's device.
    """
    start = earliest_starts(instance, route)
    first_f = np.array([start[stages_on(route, device)[0]] for device in range(instance.devices)])
    begins = np.zeros_like(first_f) if whole(instance) else first_f
    return np.asarray(first_f[None, :] - begins[:, None])


def until_first_backward(instance: Instance, route: Route) -> Ints:
    """Return the least ticks from the start of each frame to each worker's first B.

    The shape is (frames, workers).
    """
    start, last = earliest_starts(instance, route), instance.stages - 1
    held = [stages_on(route, device) for device in range(instance.devices)]
    begins = np.array([0 if whole(instance) else start[stages[0]] for stages in held])
    first_b = np.array([start[2 * last + 1 - stages[-1]] for stages in held])
    return np.asarray(first_b[None, :] - begins[:, None])


def after_last_forward(instance: Instance, route: Route) -> Ints:
    """Return the least ticks from the end of each worker's last F to the end of each frame.

    The shape is (frames, workers).
    """
    start, last = earliest_starts(instance, route), instance.stages - 1
    held = [stages_on(route, device) for device in range(instance.devices)]
    ended = [start[2 * last + 1 - s] + least_time(instance, OpKind.BW, s, route) for s in range(last + 1)]
    ends = np.array([max(ended if whole(instance) else (ended[s] for s in stages)) for stages in held])
    f_ends = [start[stages[-1]] + least_time(instance, OpKind.F, stages[-1], route) for stages in held]
    return np.asarray(ends[:, None] - np.array(f_ends)[None, :])


def whole(instance: Instance) -> bool:
    """Return whether all devices share one frame, as they do for the makespan."""
    return instance.whole


def stages_on(route: Route, device: int) -> list[int]:
    return [stage for stage, d in enumerate(route) if d == device]
