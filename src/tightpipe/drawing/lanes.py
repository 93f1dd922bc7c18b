"""Where things lie in drawings: the lanes of a device's stages, and the window of time that is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..base.errors import InputError, check_int
from ..kernels.arrays import Ints
from ..model.instance import Instance
from ..model.metrics import finished
from ..model.microbatches import lengths, listed
from ..model.operation import OpKind
from ..model.placement import Placement
from ..model.schedule import Schedule


def lane_count(placement: Placement) -> int:
    """Return the number of lanes of a device: its chunks, counted once for each direction."""
    return len(placement.routes) * placement.stages_per_device


def lanes(schedule: Schedule) -> Ints:
    """Return the lane of each operation, shape (N,).

    The lanes of a device are its chunks in the sequence of the forward pass: first the chunks of the first
    direction, then the chunks of the second.
    """
    instance = schedule.instance
    routes = instance.placement.routes
    chunk = np.array([[route[:s].count(d) for s, d in enumerate(route)] for route in routes], np.int64)
    _, stage, microbatch = schedule.order.operations.T
    route = np.array([instance.route(m) for m in range(instance.units)])[microbatch]
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


_LONGEST_LIST = 16  # characters
_MOST_LENGTHS = 6  # more lengths of microbatches have no names of their own


def length_names(instance: Instance) -> list[tuple[int, str, int]]:
    """Return lengths of microbatches: the place among `lengths`, a name, and the ticks of a microbatch.

    If all microbatches are alike, the list is empty. Of more than six lengths, it has the shortest and the
    longest.
    """
    groups = lengths(instance)
    if len(groups) == 1:
        return []
    few = len(groups) <= _MOST_LENGTHS
    named = dict.fromkeys(range(len(groups)), "") if few else {0: "shortest: ", len(groups) - 1: "longest: "}
    return [
        (k, word + _name(instance, groups[k]), instance.class_costs[instance.mb_class(groups[k][0])].work)
        for k, word in named.items()
    ]


def _name(instance: Instance, units: Sequence[int]) -> str:
    """Return which microbatches these are, or which slices of every microbatch."""
    one, several, numbers = "microbatch", "microbatches", units
    if instance.slices:
        one, several, numbers = "slice", "slices", sorted({unit % instance.slice_count for unit in units})
    text = listed(numbers)
    shown = text if len(text) <= _LONGEST_LIST else f"{text[:_LONGEST_LIST].rpartition(',')[0]}, …"
    return f"{several if len(numbers) > 1 else one} {shown}"


Window = tuple[int | None, int | None]
"""First and last tick that a drawing shows; None stands for the start or the end of the schedules."""

WHOLE: Window = (None, None)


def shown_ticks(schedules: Sequence[Schedule], window: Window) -> tuple[int, int]:
    """Return the first and the last tick of a drawing of schedules that share one time axis.

    Raise an InputError if the window does not end after it begins, or no part of the schedules lies in it.
    """
    first, last = min(int(s.start.min()) for s in schedules), max(int(finished(s).max()) for s in schedules)
    start, end = (
        usual if given is None else check_int("window", given)
        for given, usual in zip(window, (first, last), strict=True)
    )
    if not start < end or start >= last or end <= first:
        rule = f"must be a stretch of time from a tick to a later one, within the ticks {first} to {last}"
        raise InputError(rule, key="window", value=f"{start} to {end}")
    return start, end
