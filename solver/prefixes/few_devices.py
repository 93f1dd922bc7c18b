"""The problem of a few devices alone, as arrays.

An operation of any other device takes its time, but never waits until that device is free.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Bools, Ints

from ..queues import Queue, Queues
from ..windows import Windows


class FewDevices(NamedTuple):
    """The F's and B's of a few devices along the path of a microbatch, and the W's of each device.

    P is the number of the devices, Q the number of their F and B queues, n the number of microbatches, and K
    the largest number of such queues on one device. The queues are numbered along the path: a microbatch
    passes them in this sequence.
    """

    device: Ints  # (Q,) device of each queue, from 0 to P - 1
    duration: Ints  # (Q,) ticks of each item of a queue
    delta: Ints  # (Q,) memory that each item of a queue adds
    backward: Bools  # (Q,) whether the queue holds B's
    lag: Ints  # (Q,) least ticks from the end of an item to the start of the next one on the path
    earliest: Ints  # (Q, n) least start of each item in ticks
    latest: Ints  # (Q, n) largest start of each item in ticks
    on: Ints  # (P, K) queues of each device, -1 where there are fewer
    weight: Ints  # (P,) ticks of a W; the least if they differ
    freed: Ints  # (P,) memory that a W frees; the most if it differs
    limit: Ints  # (P,) memory limit of each device
    begin: Ints  # (P,) largest start of the frame of each device in ticks
    horizon: int  # the supposed cost in ticks


def few_devices(queues: Queues, windows: Windows, devices: Sequence[int]) -> FewDevices:
    """Return the problem that is left when only these devices run one operation at a time.

    Parameters
    ----------
    queues
        An instance with one route.
    windows
        Feasible windows of the instance under the supposed cost.
    devices
        Numbers of the devices, in any sequence and each once.

    Notes
    -----
    Every schedule inside the windows is a solution of this problem. Between two operations of a microbatch on
    these devices lie at least the durations of its operations on other devices, and the communication. The
    problem leaves out that operations of other devices wait for each other, and that messages wait for a
    link. If the W's of a device differ, all count as the shortest one, and as freeing the most memory.
    """
    instance, first = queues.instance, windows.arrays.graph.first
    path = path_of(queues)
    kept = [i for i, q in enumerate(path) if queues.queues[q].device in devices]
    place = {device: i for i, device in enumerate(devices)}
    own = [queues.queues[path[i]] for i in kept]
    on = [[i for i, queue in enumerate(own) if queue.device == d] for d in devices]
    weights = [_weights(queues, d) for d in devices]
    span = slice(0, instance.microbatches)
    return FewDevices(
        device=np.array([place[queue.device] for queue in own]),
        duration=np.array([queue.duration for queue in own]),
        delta=np.array([queue.delta for queue in own]),
        backward=np.array([queue.kind is OpKind.B for queue in own]),
        lag=np.array(_lags(queues, path, kept)),
        earliest=np.array([windows.earliest[first[path[i]] :][span] for i in kept]),
        latest=np.array([windows.latest[first[path[i]] :][span] for i in kept]),
        on=np.array([row + [-1] * (max(map(len, on)) - len(row)) for row in on]),
        weight=np.array([min(queue.duration for queue in row) for row in weights]),
        freed=np.array([max(-queue.delta for queue in row) for row in weights]),
        limit=windows.arrays.graph.devices["limit"][list(devices)],
        begin=windows.frames[1][list(devices)].copy(),
        horizon=windows.horizon,
    )


def is_whole(queues: Queues, devices: Sequence[int]) -> bool:
    """Return whether the problem of these devices leaves out nothing but waiting for links.

    Then its solutions say in which sequence every device runs its operations.
    """
    everything = range(queues.instance.devices)
    return sorted(devices) == list(everything) and all(len(_weights(queues, d)) == 1 for d in everything)


def under_way(queues: Queues, devices: Sequence[int]) -> int:
    """Return the most microbatches that can be between their first and last operation on these devices.

    If the last operation is the B at the stage of the first operation, the device of that stage holds an
    activation of each such microbatch. The memory limit of the device then limits their number, provided that
    no other microbatch lowers the memory of the device below what it was. Otherwise the result is the number
    of all microbatches.
    """
    instance = queues.instance
    own = [queues.queues[q] for q in path_of(queues) if queues.queues[q].device in devices]
    device, taken = own[0].device, own[0].delta
    limit = instance.memory_limit(device)
    forward = [queue.delta for queue in own if queue.device == device and queue.kind is OpKind.F]
    backward = [queue.delta for queue in own if queue.device == device and queue.kind is OpKind.B]
    never_less = all(f >= 0 and f + b >= 0 for f, b in zip(forward, reversed(backward), strict=True))
    if limit is None or taken <= 0 or own[0].members != own[-1].members or not never_less:
        return instance.microbatches
    return min(instance.microbatches, limit // taken)


def path_of(queues: Queues) -> list[int]:
    """Return the F and B queues that a microbatch passes, in sequence."""
    stages = range(queues.instance.stages)
    forward = [queues.index[OpKind.F, 0, s] for s in stages]
    return forward + [queues.index[OpKind.B, 0, s] for s in reversed(stages)]


def _lags(queues: Queues, path: list[int], kept: list[int]) -> list[int]:
    """Return the least ticks from each kept operation's end to the start of the next kept one on the path.

    `kept` holds positions in `path`. The entry of the last kept operation is 0.
    """
    travel = {(q, r): lag for q, r, lag in queues.precedences()}
    lags = []
    for here, there in itertools.pairwise(kept):
        between = [queues.queues[q].duration for q in path[here + 1 : there]]
        steps = zip(path[here:there], path[here + 1 : there + 1], strict=True)
        lags.append(sum(between) + sum(travel[step] for step in steps))
    return [*lags, 0]


def _weights(queues: Queues, device: int) -> list[Queue]:
    return [queues.queues[q] for q in queues.on(device) if queues.queues[q].kind is OpKind.W]
