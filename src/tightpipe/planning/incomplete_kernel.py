"""The least bound of the partitions in which some stage lacks F, B or W, by dynamic programming.

The loops go over the devices, and describe the layers that some devices leave to the others, as
`partition_kernel` does.
"""

from __future__ import annotations

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled
from .device_bound_kernel import is_complete
from .model_arrays import Tables
from .partition_kernel import (
    FOLDED,
    LINE,
    TICKS,
    can_be_left,
    cheapest,
    next_y,
    not_affordable,
    place,
)


@compiled
def least_incomplete(
    tables: Tables,
    kind: int,
    devices: int,
    middle: int,
    cap: int,
    least: Ints,
    lacking: Ints,
    scratch: Ints,
    device: int,
    begin: int,
    end: int,
) -> None:
    """For some remainders, find the least bounds of all ways to share each, and of the incomplete ways.

    A stage is incomplete if its F, B or W takes no time without recomputation. The bound of a partition is
    the largest `device_bound` of its devices.

    Parameters
    ----------
    tables
        The arrays of the configuration, with `partial` set.
    kind, devices, middle, scratch, device, begin, end
        As in `partition_kernel.fill`, which also says what a *remainder* is.
    cap
        Only bounds below `cap` count.
    least, lacking
        Two results of shape (p + 1, L + 1, L + 1), indexed by the three numbers of a remainder: the least
        bound of all ways to give the remainder to the other devices, and of the ways in which one of these
        devices has an incomplete stage; `NEVER` if there is no such way. All entries must be `NEVER` at
        first, but for those of `least` that `fill_end` fills.
    """
    layers = len(tables.forward) - 1
    for number in range(begin, end):
        x, y = number // (layers + 1), number % (layers + 1)
        if can_be_left(tables, kind, devices, middle, cap, device, x, y):
            _take(tables, kind, device, devices, cap, least, lacking, scratch, x, y)


@compiled
def _take(
    tables: Tables,
    kind: int,
    device: int,
    devices: int,
    cap: int,
    least: Ints,
    lacking: Ints,
    scratch: Ints,
    x: int,
    y: int,
) -> None:
    """Try all stages that `device` can take from the remainder (x, y), and write the best results.

    The entries of `least` and `lacking` for this remainder are written, from those of the device after it.
    The parameters are explained at `least_incomplete`.
    """
    layers = len(tables.forward) - 1
    for new_x in range(x + 1, layers + 1):
        if not_affordable(tables, TICKS, cap, x, new_x, 0, 0):
            break
        for step in range(0 if kind == LINE else 1, layers + 1):
            new_y = next_y(kind, y, step)
            if new_y < 0 or new_y > layers or (kind == FOLDED and new_y < new_x):
                break
            if not_affordable(tables, TICKS, cap, x, new_x, min(y, new_y), max(y, new_y)):
                break
            any_remainder, lacking_rest = least[device + 1, new_x, new_y], lacking[device + 1, new_x, new_y]
            if any_remainder < max(least[device, x, y], lacking[device, x, y]):
                place(kind, device, devices, scratch, x, new_x, y, new_y)
                complete = is_complete(tables, x, new_x) and (
                    kind == LINE or is_complete(tables, min(y, new_y), max(y, new_y))
                )
                then = lacking_rest if complete else any_remainder
                worst = min(cap - 1, max(least[device, x, y], lacking[device, x, y]))
                here = cheapest(tables, kind, device, TICKS, scratch, worst, any_remainder)
                if max(here, any_remainder) < cap:
                    least[device, x, y] = min(least[device, x, y], max(here, any_remainder))
                if max(here, then) < cap:
                    lacking[device, x, y] = min(lacking[device, x, y], max(here, then))
            if kind == LINE:
                break
