"""The bounds by the work of a device and by the path of one microbatch, and least ticks along such paths.

On a path every operation counts with the least time that any schedule can give it. That is its own duration,
unless the device may run an F together with a BW in a shorter time; then it is the time of that pair.

A *frame* is an interval as long as the cost in which all operations of a device lie; for the makespan all
devices share one. In arrays of shape (frames, workers), each row stands for the frame of one device, and each
column for one device as the *worker*, whose work is counted. Path lengths in ticks are those of a single
microbatch. Where microbatches are cut into slices, paths pass from slice to slice (`frames`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from time import perf_counter
from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph import NO_LIMIT, graph_of
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound

from .frames import frames, longest_path

_ENTRIES = 2**20  # of an array that has one for each class, frame and stage


def work_bound(instance: Instance) -> Bound:
    """Bound the cost by the largest work of a device.

    Notes
    -----
    A device runs one operation at a time, or an F together with a BW, and its work already counts what such
    pairs can save. So the span of a device is at least its work. The backward of a microbatch counts with the
    ticks of a BW or with the sum of those of B and W, whichever is less.
    """
    begun, work = perf_counter(), works(instance)
    value = max(work)
    device = work.index(value)
    argument = f"device {device} works {value} ticks, one operation at a time"
    return Bound(value, "work", argument, perf_counter() - begun)


class Paths(NamedTuple):
    """The paths of C classes of microbatches over S stages on p devices, in ticks, as arrays.

    On a path an operation takes its least time, alone or in a pair. `both` is the time of a B and the W that
    follows it, fused or not.
    """

    route: Ints  # (C, S) device of each stage
    start: Ints  # (C, 2 S) earliest starts of a microbatch's F's from stage 0 up, then of its B's down to it
    forward: Ints  # (C, S)
    backward: Ints  # (C, S)
    both: Ints  # (C, S)
    lowest: Ints  # (C, p) lowest stage of each device
    highest: Ints  # (C, p) highest stage of each device

    @property
    def backward_start(self) -> Ints:
        """Earliest start of the B at each stage, shape (C, S)."""
        return self.start[:, : self.route.shape[1] - 1 : -1]

    @property
    def ended(self) -> Ints:
        """When B and W of each stage have ended at the earliest, shape (C, S)."""
        return np.asarray(self.backward_start + self.both)


@lru_cache(maxsize=16)  # every bound asks for them
def paths_of(instance: Instance) -> Paths:
    """Return the paths of all classes of microbatches."""
    routes = np.array(instance.class_routes)
    forward, backward, weight = np.array([*graph_of(instance).least, 0])[arrays_of(instance).node]
    comm = np.array(instance.costs.comm)
    down, up = comm[routes[:, :-1], routes[:, 1:]], comm[routes[:, 1:], routes[:, :-1]]
    nothing = np.zeros((len(routes), 1), np.int64)
    steps = [nothing, forward[:, :-1] + down, forward[:, -1:], (backward[:, 1:] + up)[:, ::-1]]
    start = np.concatenate(steps, axis=1).cumsum(axis=1)
    on = routes[:, None, :] == np.arange(instance.devices)[:, None]  # each device has a stage on each route
    lowest, highest = on.argmax(axis=2), instance.stages - 1 - on[:, :, ::-1].argmax(axis=2)
    return Paths(routes, start, forward, backward, backward + weight, lowest, highest)


def chain_bound(instance: Instance) -> Bound:
    """Bound the cost by the longest path of one microbatch from its first to its last operation on a device.

    Notes
    -----
    Let lo be the lowest of the device's stages on a microbatch's route, and S the number of stages. The
    device starts no later than F lo of the microbatch, and ends no earlier than W lo. In between, the
    operations F lo, ..., F S-1, B S-1, ..., B lo and W lo of the microbatch run one after another. For the
    makespan the path begins with F 0, and ends with the W of any stage. Of k slices, the path also has the
    other F's at one of the stages, before all of its B's, and the other B's at one of the stages.
    """
    begun = perf_counter()
    if instance.slice_count > 1:
        value, at = longest_path(instance)
        path = "through all stages and back" if at is None else f"from device {at} back to it"
        return Bound(value, "chain", f"one microbatch takes {value} ticks {path}", perf_counter() - begun)
    paths = paths_of(instance)
    ended = _at(paths.ended, paths.lowest)
    if instance.whole:
        ended = np.maximum(ended, paths.ended.max(axis=1, keepdims=True))
    ticks = (ended - _begins(instance, paths)).max(axis=0)
    value, device = int(ticks.max()), int(ticks.argmax())
    argument = f"one microbatch takes {value} ticks from device {device} back to it"
    return Bound(value, "chain", argument, perf_counter() - begun)


@lru_cache(maxsize=64)
def shortest(instance: Instance, ticks_of: Callable[[Instance, Paths], Ints]) -> Ints:
    """Return the least, over all classes, of the ticks that `ticks_of` returns, shape (frames, workers).

    The classes are looked at in parts, as the arrays of many classes, frames and stages would be large. Where
    microbatches have slices, the ticks are those of the longest path through the slices of a microbatch.
    """
    if instance.slice_count > 1:
        return _through_slices(instance, *_ENDS[ticks_of])
    paths = paths_of(instance)
    some = max(1, _ENTRIES // (instance.devices * instance.stages))
    parts = (Paths(*(each[i : i + some] for each in paths)) for i in range(0, len(paths.route), some))
    least: Ints = reduce(np.minimum, (ticks_of(instance, part).min(axis=0) for part in parts))
    least.flags.writeable = False  # it is kept
    return least


def until_first_forward(instance: Instance, paths: Paths) -> Ints:
    """Return the least ticks from the start of each frame to each worker's first F of each class.

    The shape is (classes, frames, workers), here and below. A negative entry means that the worker may start
    before the frame: the worker's first stage on the route comes before that of the frame's device.
    """
    return _at(paths.start, paths.lowest)[:, None, :] - _begins(instance, paths)[:, :, None]


def until_first_backward(instance: Instance, paths: Paths) -> Ints:
    """Return the least ticks from the start of each frame to each worker's first B of each class."""
    first_b = _at(paths.backward_start, paths.highest)
    return first_b[:, None, :] - _begins(instance, paths)[:, :, None]


def after_last_forward(instance: Instance, paths: Paths) -> Ints:
    """Return the least ticks from the end of each worker's last F of each class to the end of each frame."""
    f_ends = _at(paths.start[:, : instance.stages] + paths.forward, paths.highest)
    return np.asarray(_ended(instance, paths).max(axis=2)[:, :, None] - f_ends[:, None, :])


def after_last_backward(instance: Instance, paths: Paths) -> Ints:
    """Return the least ticks from the end of each worker's last B of each class to the end of each frame.

    The last B is at the worker's lowest stage. If the frame's device has no stage at or below this one,
    nothing is known. The entry is then minus the worker's work, which leaves room for all of its B's.
    """
    b_ends = _at(paths.backward_start + paths.backward, paths.lowest)
    until = np.maximum.accumulate(_ended(instance, paths), axis=2)
    ends = np.take_along_axis(until, paths.lowest[:, None, :], axis=2)
    return np.where(ends < 0, -np.array(works(instance)), ends - b_ends[:, None, :])


_ENDS: dict[Callable[[Instance, Paths], Ints], tuple[str, OpKind]] = {
    until_first_forward: ("head", OpKind.F),
    until_first_backward: ("head", OpKind.B),
    after_last_forward: ("tail", OpKind.F),
    after_last_backward: ("tail", OpKind.B),
}


def _through_slices(instance: Instance, end: str, kind: OpKind) -> Ints:
    """Return the least ticks between an end of each frame and the operations of each worker of this kind."""
    found = np.full((len(frames(instance)), instance.devices), NO_LIMIT)
    for row, frame in zip(found, frames(instance), strict=True):
        for node, ticks in zip(graph_of(instance).nodes, getattr(frame, end), strict=True):
            if node.kind is kind:
                row[node.device] = min(row[node.device], ticks)
    if end == "tail":
        found = np.where(found < 0, np.negative(works(instance)), found)
    found = np.repeat(found, instance.devices // len(found), axis=0)  # all devices may share one frame
    found.flags.writeable = False
    return found


def _at(ticks: Ints, stages: Ints) -> Ints:
    """Return the entries of the given columns of each row."""
    return np.take_along_axis(ticks, stages, axis=1)


def _begins(instance: Instance, paths: Paths) -> Ints:
    """Return when each frame begins, for a microbatch of each class that starts at 0: (classes, frames)."""
    begins = _at(paths.start, paths.lowest)
    return np.zeros_like(begins) if instance.whole else begins


def _ended(instance: Instance, paths: Paths) -> Ints:
    """Return when B and W of each stage have ended, (classes, frames, stages); outside of the frame -1."""
    inside = paths.route[:, None, :] == np.arange(instance.devices)[:, None]
    return np.where(inside | instance.whole, paths.ended[:, None, :], -1)
