"""Loops that find the least loaded partition, whose devices are far from their limits.

The loops use dynamic programming over the devices. `partition_kernel` says what a *remainder* is.
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
    amount,
    fewest_first,
    fewest_taken,
    is_beyond,
    is_empty,
    is_rest,
    next_y,
    place,
    roughness,
)

_INFINITE = float("inf")  # within a loop this would be a text to read, which takes seconds to compile


class Relaxing(NamedTuple):
    """What relaxed partitions are compared by."""

    cap: int  #: a cost in ticks, below which bounds must lie
    cost: int  #: a cost in ticks, at which loads are measured
    held: float  #: how many times as long as necessary microbatches hold memory, at least 1
    load_power: int  #: see `load`
    evenness: float  #: the weight of `roughness`, so that equally loaded partitions have even stages


@compiled
def load(
    tables: Tables, device: int, stage: Ints, begin: Ints, end: Ints, option: Ints, relaxing: Relaxing
) -> float:
    """Return how loaded a device with the given stages would be in a schedule that costs `cost` ticks.

    The load is the sum of high powers, `load_power`, of two numbers. One is the share of the time in
    which the device works. The other one is the share of its memory that is in use, averaged over time, if
    microbatches hold memory `held` times as long as `memory_time` supposes, which is the shortest time that
    is possible. Schedules of such a cost are hard to find if one of the two numbers is close to 1. The stages
    are given as in `device_bound`, which is at most `cap`.
    """
    work = 0
    for i in range(tables.chunks):
        f, b, w = durations(tables, device, begin[i], end[i], option[i])
        work += f + b + w
    cost, power, room = relaxing.cost, relaxing.load_power, tables.room[device]
    found = (work * float(tables.microbatches) / cost) ** power
    if room < NO_LIMIT:
        room -= taken_apart(tables, begin, end, option)
        held = relaxing.held * memory_time(tables, device, stage, begin, end, option, room, 0)
        found += (held / cost) ** power
    return found


@compiled
def _fixed_load(
    tables: Tables, device: int, begin: Ints, end: Ints, option: Ints, relaxing: Relaxing, bound: int
) -> float:
    """Return how loaded a device is whose schedules have fixed orders, in which memory either fits or not.

    This is a power of the share of its bound in the cost. Where two stages take turns in groups of p
    microbatches, an F of one stage alternates with a B of the same or of the other one, and all devices wait
    for the slowest one in each turn. So the ticks of these pairs count as well. F's are ahead of B's by the
    warm-up of the device, which says how often it is the other stage.
    """
    found, power = (bound / relaxing.cost) ** relaxing.load_power, relaxing.load_power
    if tables.chunks == 2:
        other = 1.0 - abs(1.0 - 2.0 * (len(tables.room) - 1 - device) / len(tables.room))
        turn = tables.microbatches * 2.0 / relaxing.cost
        f, b, _ = durations(tables, device, begin[0], end[0], option[0])
        f2, b2, _ = durations(tables, device, begin[1], end[1], option[1])
        found += other * ((turn * (f + b2)) ** power + (turn * (f2 + b)) ** power)
        found += (1.0 - other) * ((turn * (f + b)) ** power + (turn * (f2 + b2)) ** power)
    return found


@compiled
def least_loaded(
    tables: Tables,
    relaxing: Relaxing,
    least: Floats,
    chosen: Ints,
    scratch: Ints,
    device: int,
    begin: int,
    end: int,
) -> None:
    """For some remainders, find the way to share each with the least sum of the devices' loads.

    Only stages with a `device_bound` below `cap` count. To the loads, a small multiple, `evenness`, of the
    `roughness` of the stages is added. Other parameters are those of `partition_kernel.fill`.

    - `least`: a result of shape (p + 1, L + 1, L + 1): for each remainder, the least sum over the devices
      that have no stages yet; infinite if there is no partition with bounds below `cap`.
    - `chosen`: a result of shape (p + 1, L + 1, L + 1, 4): for each remainder with a finite sum, the new x
      and y and the recompute options of the stages that the next device takes in the partition with the least
      sum.
    """
    side = len(tables.forward)
    for number in range(begin, end):
        x, y = number // side, number % side
        least[device, x, y] = _INFINITE
        if device == len(tables.room):
            if is_empty(tables, x, y):
                least[device, x, y] = 0.0
        elif is_rest(tables, device, x, y):
            _take(tables, device, relaxing, least, chosen, scratch, x, y)


@compiled
def _take(
    tables: Tables,
    device: int,
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
    for new_x in range(x + fewest_first(tables, device), layers + 1):
        if amount(tables, TICKS, x, new_x) > cap:
            break
        for step in range(fewest_taken(tables, device), layers + 1):
            new_y = next_y(tables, y, step)
            if is_beyond(tables, TICKS, float(cap), x, new_x, y, new_y):
                break
            then = least[device + 1, new_x, new_y]
            if then < least[device, x, y]:
                place(tables, device, scratch, x, new_x, y, new_y)
                then += relaxing.evenness * roughness(tables, x, new_x, y, new_y)
                found, one, two = _least_by_option(tables, device, relaxing, scratch)
                if then + found < least[device, x, y]:
                    least[device, x, y] = then + found
                    chosen[device, x, y, 0], chosen[device, x, y, 1] = new_x, new_y
                    chosen[device, x, y, 2], chosen[device, x, y, 3] = one, two
            if tables.kind == LINE:
                break


@compiled
def _least_by_option(
    tables: Tables, device: int, relaxing: Relaxing, scratch: Ints
) -> tuple[float, int, int]:
    """Return the least load of a device, over all ways to recompute the stages that `place` has written.

    The load is followed by the recompute options of the two stages. For `LINE`, the second option means
    nothing. The load is infinite if no way has a bound below `cap`.
    """
    side, best, first_option, second_option = len(tables.forward), _INFINITE, 0, 0
    stage, begin, end, option, heap = scratch[0:2], scratch[2:4], scratch[4:6], scratch[6:8], scratch[8:24]
    first = begin[0] * side + end[0]
    second = first if tables.kind == LINE else begin[1] * side + end[1]
    for one in range(tables.first_option[first], tables.first_option[first + 1]):
        option[0] = one
        for two in range(tables.first_option[second], tables.first_option[second + 1]):
            option[1] = two
            bound = device_bound(tables, device, stage, begin, end, option, heap, 0)
            if bound < relaxing.cap:
                if tables.fixed and tables.joined == 0:
                    found = _fixed_load(tables, device, begin, end, option, relaxing, bound)
                else:
                    found = load(tables, device, stage, begin, end, option, relaxing)
                if found < best:
                    best, first_option, second_option = found, one, two
            if tables.kind == LINE:
                break
    return best, first_option, second_option
