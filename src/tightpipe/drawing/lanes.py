"""Lanes tell the stages of one device apart in drawings.

A lane is a chunk of a device, or a direction in the bidirectional placement.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..core.graph_arrays import arrays_of
from ..core.operation import OpKind
from ..core.placement import Placement, Route
from ..core.schedule import Schedule
from ..kernels.arrays import Ints


def lane_count(placement: Placement) -> int:
    """Return the number of lanes of a device: its chunks, counted once for each direction."""
    return len(placement.routes) * placement.stages_per_device


def lanes(schedule: Schedule) -> Ints:
    """Return the lane of each operation, shape (N,).

    The lanes of a device are its chunks in the sequence of the forward pass: first the chunks of the first
    direction, then the chunks of the second.
    """
    instance = schedule.instance
    chunk = np.array([_chunks(route) for route in instance.placement.routes], np.int64)
    _, stage, microbatch = schedule.order.operations.T
    route = arrays_of(instance).mb_class[microbatch]
    lane: Ints = route * instance.placement.stages_per_device + chunk[route, stage]
    return lane


def visits(schedule: Schedule) -> Ints:
    """Return each operation's lane, renumbered in the sequence in which its pass reaches lanes, shape (N,).

    The pass of an F is the forward pass, and that of the other kinds is the backward pass. The lanes of the
    first direction come before those of the second. Forward passes reach the chunks of a device in the
    sequence of the lanes. Backward passes run from the last stage to the first, so they reach the chunks of a
    direction in the opposite sequence.
    """
    placement = schedule.instance.placement
    chunks = placement.stages_per_device
    forward = lanes(schedule)
    backward = forward - 2 * (forward % chunks) + chunks - 1
    return np.where(schedule.order.operations[:, 0] == OpKind.F, forward, backward)


def looks(schedule: Schedule) -> list[tuple[OpKind, int]]:
    """Return the pairs of kind and lane that occur in a schedule, in ascending order."""
    kinds = schedule.order.operations[:, 0].tolist()
    return sorted({(OpKind(k), lane) for k, lane in zip(kinds, lanes(schedule).tolist(), strict=True)})


def lane_noun(placements: Iterable[Placement]) -> str:
    """Return the word for the lanes of these placements in a legend; empty if no device has two lanes."""
    several = [p for p in placements if lane_count(p) > 1]
    nouns = {"chunk" if len(p.routes) == 1 else "direction" for p in several}
    return " or ".join(sorted(nouns))


def _chunks(route: Route) -> list[int]:
    """Return the chunk of each stage of a route: its index among the stages of its device."""
    return [route[:stage].count(device) for stage, device in enumerate(route)]
