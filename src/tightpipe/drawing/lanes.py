"""Lanes: which chunk, or which direction, an operation belongs to; drawings tell them apart."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..core.instance_arrays import arrays_of
from ..core.operation import OpKind
from ..core.placement import Placement, Route
from ..core.schedule import Schedule
from ..kernels.arrays import Ints


def lane_count(placement: Placement) -> int:
    """Return the number of lanes of a device: its chunks, once per direction."""
    return len(placement.routes) * placement.stages_per_device


def lanes(schedule: Schedule) -> Ints:
    """Return the lane of each operation, shape (N,).

    A device's lanes are its chunks in forward order; a second direction's follow the first's.
    """
    instance = schedule.instance
    chunk = np.array([_chunks(route) for route in instance.placement.routes], np.int64)
    _, stage, microbatch = schedule.order.operations.T
    route = arrays_of(instance).route[microbatch]
    lane: Ints = route * instance.placement.stages_per_device + chunk[route, stage]
    return lane


def visits(schedule: Schedule) -> Ints:
    """Return for each operation which lane it is in the order that a microbatch reaches them, shape (N,).

    Forward passes reach a device's chunks in the order of the lanes; backward passes, which run
    from the last stage to the first, reach the chunks of a direction in the opposite order.
    """
    placement = schedule.instance.placement
    chunks = placement.stages_per_device
    forward = lanes(schedule)
    backward = forward - 2 * (forward % chunks) + chunks - 1
    return np.where(schedule.order.operations[:, 0] == OpKind.F, forward, backward)


def looks(schedule: Schedule) -> list[tuple[OpKind, int]]:
    """Return the kinds and lanes that a schedule has operations of, in ascending order."""
    kinds = schedule.order.operations[:, 0].tolist()
    return sorted({(OpKind(k), lane) for k, lane in zip(kinds, lanes(schedule).tolist(), strict=True)})


def lane_noun(placements: Iterable[Placement]) -> str:
    """Return what the lanes of these placements are, for a legend; empty where no device has two."""
    several = [p for p in placements if lane_count(p) > 1]
    nouns = {"chunk" if len(p.routes) == 1 else "direction" for p in several}
    return " or ".join(sorted(nouns))


def _chunks(route: Route) -> list[int]:
    """Return the index of each stage of a route on its device."""
    return [route[:stage].count(device) for stage, device in enumerate(route)]
