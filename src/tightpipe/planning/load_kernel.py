"""Loops that find the least loaded partition, whose devices are far from their limits.

The loops use dynamic programming over the devices, and describe the layers that some devices leave to the
others as `partition_kernel` does.
"""

from __future__ import annotations

from typing import NamedTuple

from ..kernels.arrays import Floats, Ints
from ..kernels.compiled import compiled
from .device_bound_kernel import device_bound, durations, memory_time, taken_apart
from .model_arrays import NO_LIMIT, Tables
from .partition_kernel import (
    LINE,
    TICKS,
    fewest_taken,
    from_behind,
    is_empty,
    is_rest,
    next_y,
    not_affordable,
    place,
    roughness,
)

_INFINITE = float("inf")  # within a loop this would be a text to read, which takes seconds to compile


class Relaxing(NamedTuple):
    """What relaxed partitions are compared by."""

    cap: int  #: a cost in ticks, at which loads are measured and below which bounds must lie
    held: float  #: how many times as long as necessary microbatches hold memory, at least 1
    load_power: int  #: see `load`
    evenness: float  #: the weight of `roughness`, so that equally loaded partitions have even stages


@compiled
def load(
    tables: Tables,
    device: int,
    stage: Ints,
    begin: Ints,
    end: Ints,
    option: Ints,
    room: int,
    relaxing: Relaxing,
) -> float:
    """Return how loaded a device with the given stages would be in a schedule that costs `cap` ticks.

    The load is the sum of high powers, `load_power`, of two numbers. One is the share of the time in
    which the device works. The other one is the share of its memory that is in use, averaged over time, if
    microbatches hold memory `held` times as long as `memory_time` supposes, which is the shortest time that
    is possible.
    Schedules of such a cost are hard to find if one of the two numbers is close to 1.

    - `tables`, `device`, `stage`, `begin`, `end`, `option`: see `device_bound`.
    - `room`: the bytes of the device that activations can use, or at least `NO_LIMIT` where memory has no
      limit.
    - `relaxing`: the cost `cap`, which is at least the `device_bound`, and the other numbers.
    """
    work = 0
    for i in range(tables.chunks):
        f, b, w = durations(tables, device, begin[i], end[i], option[i])
        work += f + b + w
    cost, power = relaxing.cap, relaxing.load_power
    found = (work * float(tables.microbatches) / cost) ** power
    if room < NO_LIMIT:
        held = relaxing.held * memory_time(tables, device, stage, begin, end, option, room, 0)
        found += (held / cost) ** power
    return found


@compiled
def least_loaded(
    tables: Tables,
    kind: int,
    devices: int,
    middle: int,
    relaxing: Relaxing,
    least: Floats,
    chosen: Ints,
    scratch: Ints,
    device: int,
    first: int,
    last: int,
) -> None:
    """For some remainders, find the way to share each with the least sum of the devices' loads.

    Only stages with a `device_bound` below `cap` count. What is minimized is the sum of the loads at the
    cost `cap`, plus a small multiple, `evenness`, of the `roughness` of the stages.

    - `tables`, `kind`, `devices`, `middle`, `scratch`: as in `partition_kernel.fill`, which also says what a
      *remainder* is.
    - `relaxing`: what partitions are compared by.
    - `least`: a result of shape (p + 1, L + 1, L + 1): for each remainder, the least sum over the devices
      that have no stages yet; infinite if there is no partition with bounds below `cap`.
    - `chosen`: a result of shape (p + 1, L + 1, L + 1, 4): for each remainder with a finite sum, the new x
      and y and the recompute options of the stages that the next device takes in the partition with the least
      sum.
    - `device`: the number of devices that already have their stages, up to p. The remainders of `device + 1`,
      if that is at most p, must be done.
    - `first`, `last`: the remainders with the numbers `first` to `last - 1` are done; the remainder (x, y)
      has number x (L + 1) + y.
    """
    layers = len(tables.forward) - 1
    for number in range(first, last):
        x, y = number // (layers + 1), number % (layers + 1)
        least[device, x, y] = _INFINITE
        if device == devices:
            if is_empty(kind, x, y, layers, middle):
                least[device, x, y] = 0.0
        elif is_rest(tables, kind, x, y, layers, middle, devices - device, device):
            _take(tables, kind, device, devices, relaxing, least, chosen, scratch, x, y)


@compiled
def _take(
    tables: Tables,
    kind: int,
    device: int,
    devices: int,
    relaxing: Relaxing,
    least: Floats,
    chosen: Ints,
    scratch: Ints,
    x: int,
    y: int,
) -> None:
    """Try all stages that `device` can take from the remainder (x, y), and write the best result.

    The entries of `least` and `chosen` for this remainder are written, from those of the device after it. The
    parameters are explained at `least_loaded`.
    """
    layers, cap = len(tables.forward) - 1, relaxing.cap
    for new_x in range(x + 1, layers + 1):
        if not_affordable(tables, TICKS, cap, x, new_x, 0, 0):
            break
        for step in range(fewest_taken(tables, kind, device, devices), layers + 1):
            new_y = next_y(kind, y, step)
            if new_y < 0 or new_y > layers or (from_behind(kind) and new_y < new_x):
                break
            if not_affordable(tables, TICKS, cap, x, new_x, min(y, new_y), max(y, new_y)):
                break
            then = least[device + 1, new_x, new_y]
            if then < least[device, x, y]:
                place(tables, kind, device, devices, scratch, x, new_x, y, new_y)
                then += relaxing.evenness * roughness(tables, kind, devices, x, new_x, y, new_y)
                found, one, two = _least_by_option(tables, kind, device, relaxing, scratch)
                if then + found < least[device, x, y]:
                    least[device, x, y] = then + found
                    chosen[device, x, y, 0], chosen[device, x, y, 1] = new_x, new_y
                    chosen[device, x, y, 2], chosen[device, x, y, 3] = one, two
            if kind == LINE:
                break


@compiled
def _least_by_option(
    tables: Tables, kind: int, device: int, relaxing: Relaxing, scratch: Ints
) -> tuple[float, int, int]:
    """Return the least load of a device, over all ways to recompute the stages that `place` has written.

    The load is followed by the recompute options of the two stages. For `LINE`, the second option means
    nothing. The load is infinite if no way has a bound below `cap`.
    """
    side, best, first_option, second_option = len(tables.forward), _INFINITE, 0, 0
    stage, begin, end, option, heap = scratch[0:2], scratch[2:4], scratch[4:6], scratch[6:8], scratch[8:24]
    first = begin[0] * side + end[0]
    second = begin[1] * side + end[1] if kind != LINE else first
    for one in range(tables.first_option[first], tables.first_option[first + 1]):
        option[0] = one
        for two in range(tables.first_option[second], tables.first_option[second + 1]):
            option[1] = two
            if device_bound(tables, device, stage, begin, end, option, heap, 0) < relaxing.cap:
                room = tables.room[device]
                if room < NO_LIMIT:
                    room -= taken_apart(tables, begin, end, option)
                found = load(tables, device, stage, begin, end, option, room, relaxing)
                if found < best:
                    best, first_option, second_option = found, one, two
            if kind == LINE:
                break
    return best, first_option, second_option
