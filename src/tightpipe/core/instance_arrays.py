"""The numbers of an instance as arrays, which compiled loops and mathematical models read."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .instance import Instance
from .operation import OpKind


class InstanceArrays(NamedTuple):
    """Arrays of one instance with R routes, S stages, n microbatches and p devices; times are in ticks.

    Take an operation of kind k at stage s of route r. ``lag[k, r, s]`` is the communication time of its
    input, which an F gets from F of stage s - 1, and a B or BW from B or BW of stage s + 1. The lag is 0
    where the operation needs nothing from another device. ``peer[k, r, s]`` is the device to which the
    operation sends its result, and -1 where no other device needs the result. A `limit` or an `overlapped`
    of -1 means that the instance has none.
    """

    duration: NDArray[np.int64]  # (4, S) ticks of each operation
    delta: NDArray[np.int64]  # (4, S) memory that each operation adds; negative where it frees memory
    device: NDArray[np.int64]  # (R, S) device of each stage
    lag: NDArray[np.int64]  # (4, R, S)
    peer: NDArray[np.int64]  # (4, R, S)
    route: NDArray[np.int64]  # (n,) route of each microbatch
    limit: NDArray[np.int64]  # (p,) memory limit of each device
    overlapped: NDArray[np.int64]  # (p,) ticks of an F that runs together with a BW on each device


@lru_cache(maxsize=64)
def arrays_of(instance: Instance) -> InstanceArrays:
    """Return the arrays of `instance`; they are read-only, because a cache shares them between callers."""
    stages, routes = range(instance.stages), instance.placement.routes
    forward_peer = np.array([[*(_peer(a, b) for a, b in pairwise(r)), -1] for r in routes])
    backward_peer = np.array([[-1, *(_peer(b, a) for a, b in pairwise(r))] for r in routes])
    forward_lag = np.array([[0, *(instance.comm(a, b) for a, b in pairwise(r))] for r in routes])
    backward_lag = np.array([[*(instance.comm(b, a) for a, b in pairwise(r)), 0] for r in routes])
    result = InstanceArrays(
        duration=np.array([[instance.duration(k, s) for s in stages] for k in OpKind]),
        delta=np.array([[instance.memory_delta(k, s) for s in stages] for k in OpKind]),
        device=np.array(routes),
        lag=np.array([forward_lag, backward_lag, np.zeros_like(forward_lag), backward_lag]),
        peer=np.array([forward_peer, backward_peer, np.full_like(forward_peer, -1), backward_peer]),
        route=np.array([instance.route(m) for m in range(instance.microbatches)]),
        limit=_or_minus_one([instance.memory_limit(d) for d in range(instance.devices)]),
        overlapped=_or_minus_one([instance.overlapped(d) for d in range(instance.devices)]),
    )
    for array in result:
        array.flags.writeable = False
    return result


def _peer(sender: int, receiver: int) -> int:
    return -1 if sender == receiver else receiver


def _or_minus_one(values: list[int | None]) -> NDArray[np.int64]:
    return np.array([-1 if value is None else value for value in values])
