"""Bounds of all ways to give layers to devices, by dynamic programming over the devices.

The bound of a device depends only on its own stages, and the bound of a partition is the largest of a device.
The least bound of all partitions is found by letting one device after another take its stages.

A set of layers that some devices leave to the others is called a *remainder*. Devices take their stages in
ascending order, and so a remainder is given by the number of devices that already have their stages, and by
two layers x and y. `LINE`: the layers from x on are left, and y is 0. `FOLDED`: those from x to y - 1 are
left. `LOOPED`: the layers from x to `Tables.middle` - 1 and those from y on are left. `JOINED`, `TURNED`: as
many layers as those from x to y - 1 are left, and maybe the last layer of the model.
"""

from __future__ import annotations

from typing import NamedTuple

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled
from .device_bound_kernel import NEVER, device_bound, device_excess
from .model_arrays import Tables

LINE, FOLDED, LOOPED, JOINED, TURNED = range(5)
"""How each device in turn takes its stages from the layers that are left: values of `Tables.kind`.

`LINE`: one stage from the front. `FOLDED`: one stage from the front and one from the back. `LOOPED`: one
stage from the front of each half of the stages. `JOINED`: one stage from the front, and from the back the
layers of all its later stages, which are equal; the last layer of the model goes to the last device.
`TURNED`: likewise, but the last layer goes to the first device.
"""
TICKS, BYTES = 0, 1
"""What is minimized: the largest bound of a device in ticks, or the most bytes that a device lacks."""


class Shares(NamedTuple):
    """The best way to share each remainder among the devices that have no stages yet.

    Each array has shape (p + 1, L + 1, L + 1) for p devices and L layers, and is indexed by the three numbers
    of a remainder. The best way has the least largest bound; among several such ways, the least `total`.
    """

    least: Ints  # the largest bound of one of these devices
    total: Ints  # the sum of the `roughness` of their stages
    #: the least ticks that recomputation adds on these devices, over all ways with bounds below the cap
    again: Ints


@compiled
def fill(
    tables: Tables, cap: int, counted: int, shares: Shares, scratch: Ints, device: int, begin: int, end: int
) -> None:
    """For some remainders, find how the other devices share them so that their largest bound is least.

    The bound of a device is its `device_bound` in ticks, or the bytes that it lacks, as `counted` says. In a
    partition whose cost is below `cap`, the devices after one recompute for at least as long as
    `Shares.again` says of what is left for them, as their bounds are below `cap` too. So this counts in the
    bound of the device before them.

    - `tables`: the arrays of the configuration, with `chunks` 1 for `LINE` and else 2; see `Tables.joined`.
    - `cap`: every bound that is not below `cap` is replaced by `NEVER`.
    - `counted`: what is minimized: `TICKS` or `BYTES`.
    - `shares`: the result, of which the remainders of `device + 1`, if that is at most p, must be filled.
    - `scratch`: working space for 24 numbers.
    - `device`: the number of devices that already have their stages, up to p.
    - `begin`, `end`: the remainders with the numbers `begin` to `end - 1` are filled; the remainder (x, y)
      has number x (L + 1) + y.
    """
    side = len(tables.forward)
    for number in range(begin, end):
        x, y = number // side, number % side
        shares.least[device, x, y] = NEVER
        if device == len(tables.room):
            if is_empty(tables, x, y):
                shares.least[device, x, y] = 0
        elif can_be_left(tables, counted, cap, device, x, y):
            _take(tables, device, cap, counted, shares, scratch, x, y)


@compiled
def from_behind(tables: Tables) -> bool:
    """Return whether devices also take layers from the back of a remainder (x, y), so that y falls."""
    return tables.kind != LINE and tables.kind != LOOPED


@compiled
def has_last(tables: Tables, device: int) -> bool:
    """Return whether the model's last layer is left before `device` takes its stages: `JOINED`, `TURNED`."""
    return tables.kind == JOINED or device == 0


@compiled
def fewest_first(tables: Tables, device: int) -> int:
    """Return the fewest layers of the first stage of a device."""
    is_end = device == 0 or (tables.kind == LINE and device == len(tables.room) - 1)
    return 1 if is_end or not tables.empty else 0


@compiled
def fewest_taken(tables: Tables, device: int) -> int:
    """Return the fewest layers by which y changes when a device takes its stages."""
    if tables.joined == 0:
        is_end = device == (0 if tables.kind == FOLDED else len(tables.room) - 1)
        return 1 if tables.kind != LINE and (is_end or not tables.empty) else 0
    return tables.joined - (1 if device == (len(tables.room) - 1 if tables.kind == JOINED else 0) else 0)


@compiled
def is_empty(tables: Tables, x: int, y: int) -> bool:
    """Return whether no layer is left in the remainder (x, y)."""
    layers = len(tables.forward) - 1
    if tables.kind == LINE:
        return x == layers and y == 0
    if from_behind(tables):
        return x == y
    return x == tables.middle and y == layers


@compiled
def is_rest(tables: Tables, device: int, x: int, y: int) -> bool:
    """Return whether (x, y) can be the remainder before `device` takes its stages.

    The devices before it must have taken at least one layer for each of their stages, and as many must be
    left for each stage of the others, or if stages may be empty, for the first and the last one. If `device`
    is 0, all layers must be left.
    """
    kind, middle = tables.kind, tables.middle
    layers, after = len(tables.forward) - 1, len(tables.room) - device
    if tables.empty and device > 0:
        if kind == LINE:
            return y == 0 and 1 <= x < layers
        return 1 <= x <= y < layers if kind == FOLDED else 1 <= x <= middle <= y < layers
    if tables.empty:
        return x == 0 and y == (0 if kind == LINE else layers if kind == FOLDED else middle)
    if kind == LINE:
        return y == 0 and x >= device and layers - x >= after and (device > 0 or x == 0)
    if kind == FOLDED:
        return x >= device and layers - y >= device and y - x >= 2 * after and (device > 0 or y - x == layers)
    if kind != LOOPED:
        last = 1 if has_last(tables, device) else 0
        taken = layers - y - last >= device * tables.joined and x >= device
        return taken and y - x >= after * (1 + tables.joined) - last and (device > 0 or y - x == layers - 1)
    first = device > 0 or (x == 0 and y == middle)
    return first and x >= device and y - middle >= device and middle - x >= after and layers - y >= after


@compiled
def can_be_left(tables: Tables, counted: int, cap: int, device: int, x: int, y: int) -> bool:
    """Return whether (x, y) can remain before `device` takes its stages, in a partition below the cap.

    In such a partition, no device has a larger `amount` than `most_of` says. The other conditions are those
    of `is_rest`.
    """
    if not is_rest(tables, device, x, y):
        return False
    left, before, after = _left_amount(tables, counted, device, x, y), 0.0, 0.0
    for other in range(len(tables.room)):
        if other < device:
            before += most_of(tables, counted, cap, other)
        else:
            after += most_of(tables, counted, cap, other)
    return left <= after and amount(tables, counted, 0, len(tables.forward) - 1) - left <= before


@compiled
def work_of(tables: Tables, begin: int, end: int) -> int:
    forward = tables.forward[end] - tables.forward[begin]
    backward = tables.backward[end] - tables.backward[begin]
    return int(forward + backward + tables.weight[end] - tables.weight[begin])


@compiled
def amount(tables: Tables, counted: int, begin: int, end: int) -> int:
    """Return the least that layers `begin` to `end - 1` take on their device.

    It is their work for all microbatches, or the bytes that they take whatever is recomputed and leaves.
    """
    if counted == TICKS:
        return tables.microbatches * work_of(tables, begin, end)
    return int(tables.least[end] - tables.least[begin])


@compiled
def most_of(tables: Tables, counted: int, cap: int, device: int) -> float:
    """Return the largest `amount` of a device whose bound is at most `cap`."""
    return float(cap) if counted == TICKS else float(cap) + float(tables.room[device])


@compiled
def _left_amount(tables: Tables, counted: int, device: int, x: int, y: int) -> int:
    """Return the `amount` of the layers of the remainder (x, y)."""
    layers = len(tables.forward) - 1
    if tables.kind == LINE:
        return amount(tables, counted, x, layers)
    if from_behind(tables):
        last = tables.kind != FOLDED and has_last(tables, device)
        return amount(tables, counted, x, y) + (amount(tables, counted, layers - 1, layers) if last else 0)
    return amount(tables, counted, x, tables.middle) + amount(tables, counted, y, layers)


@compiled
def _take(
    tables: Tables, device: int, cap: int, counted: int, shares: Shares, scratch: Ints, x: int, y: int
) -> None:
    """Try all stages that `device` can take from the remainder (x, y), and write the best result.

    The entries for this remainder are written, from those of the device after it. The parameters are
    explained at `fill`. If no largest bound is below `cap`, nothing is written.
    """
    layers = len(tables.forward) - 1
    best, summed, fewest = cap, NEVER, NEVER
    for new_x in range(x + fewest_first(tables, device), layers + 1):
        most = most_of(tables, counted, cap if counted == TICKS else best, device)
        if amount(tables, counted, x, new_x) > most:
            break
        for step in range(fewest_taken(tables, device), layers + 1):
            new_y = next_y(tables, y, step)
            if is_beyond(tables, counted, most, x, new_x, y, new_y):
                break
            then, later = shares.least[device + 1, new_x, new_y], shares.again[device + 1, new_x, new_y]
            wanted = then < best if counted == BYTES else then <= best or later < fewest
            if then < NEVER and wanted:
                place(tables, device, scratch, x, new_x, y, new_y)
                here, more = cheapest(
                    tables, device, counted, scratch, cap, best, then, later, fewest - later
                )
                fewest = min(fewest, later + more)
                largest = max(then, here)
                if here < NEVER and largest < cap:
                    sums = roughness(tables, x, new_x, y, new_y) + shares.total[device + 1, new_x, new_y]
                    if largest < best or (largest == best and sums < summed):
                        best, summed = largest, sums
            if tables.kind == LINE:
                break
    if summed < NEVER:
        shares.least[device, x, y], shares.total[device, x, y] = best, summed
        shares.again[device, x, y] = fewest


@compiled
def next_y(tables: Tables, y: int, step: int) -> int:
    """Return the new y of a remainder (x, y) after a device takes `step` layers at y."""
    return y - step if from_behind(tables) else y + step


@compiled
def is_beyond(tables: Tables, counted: int, most: float, x: int, new_x: int, y: int, new_y: int) -> bool:
    """Return whether no device can turn (x, y) into (`new_x`, `new_y`), nor take more layers at y.

    A device cannot if its stages have a larger `amount` than `most`. More layers then have a larger one, too.
    """
    if new_y < 0 or new_y > len(tables.forward) - 1 or (from_behind(tables) and new_y < new_x):
        return True
    second = amount(tables, counted, min(y, new_y), max(y, new_y))
    return amount(tables, counted, x, new_x) + second > most


@compiled
def roughness(tables: Tables, x: int, new_x: int, y: int, new_y: int) -> int:
    """Return how uneven the stages are that a device takes when (x, y) becomes (`new_x`, `new_y`).

    The work of each stage is expressed in per cent of the mean work of a stage, and squared. The result is
    the sum of these squares, over the stages of the device; joined stages count as equal.
    """
    stages, is_line = len(tables.hop), tables.kind == LINE
    mean = work_of(tables, 0, len(tables.forward) - 1) / stages
    others = max(1, stages // len(tables.room) - 1)
    first = int(100 * work_of(tables, x, new_x) / mean)
    second = 0 if is_line else int(100 * work_of(tables, min(y, new_y), max(y, new_y)) / mean / others)
    return first * first + others * second * second


@compiled
def place(tables: Tables, device: int, scratch: Ints, x: int, new_x: int, y: int, new_y: int) -> None:
    """Write to `scratch` the stages that a device takes when (x, y) becomes (`new_x`, `new_y`).

    Entries 0 and 1 get the numbers of the stages, entries 2 and 3 their first layers, and entries 4 and 5 the
    layers after their last ones. For `LINE`, only the first entry of each pair is written. Layers of joined
    stages are placed as late as they can be: a layer follows for each stage after the last one of the device,
    less those that are left out of the tables.
    """
    scratch[0], scratch[2], scratch[4] = device, x, new_x
    if tables.kind == LINE:
        return
    stages, devices, turns = len(tables.hop), len(tables.room), tables.kind in (FOLDED, TURNED)
    scratch[1] = stages - 1 - device if turns else stages - devices + device
    scratch[3], scratch[5] = min(y, new_y), max(y, new_y)
    if tables.joined > 0:
        layers, later = len(tables.forward) - 1, stages - 1 - scratch[1]  # stages after those of the device
        if later > 0:
            left_out = stages // devices - 1 - tables.joined
            scratch[5] = max(layers - max(1, later - left_out), devices + y - new_y)
            scratch[3] = scratch[5] - (y - new_y)
        else:
            scratch[5], scratch[3] = layers, layers - 1 - (y - new_y)


@compiled
def cheapest(
    tables: Tables,
    device: int,
    counted: int,
    scratch: Ints,
    cap: int,
    best: int,
    enough: int,
    later: int,
    fewest: int,
) -> tuple[int, int]:
    """Return the least bound of a device, over all ways to recompute the stages that `place` has written.

    The bound is that of `device_bound` if `counted` is `TICKS`, and that of `device_excess` if it is `BYTES`.
    Only a bound above `enough` and up to `best` has to be exact. If the least bound is above `best`, another
    number above `best` may be returned. If it is at most `enough`, another number that is at most `enough`
    may be returned. The second number is the least ticks that recomputation adds in a way whose bound is
    below `cap`, or `fewest` if it is not below that. `device_bound` explains `later`.
    """
    side, is_line = len(tables.forward), tables.kind == LINE
    stage, begin, end, option, heap = scratch[0:2], scratch[2:4], scratch[4:6], scratch[6:8], scratch[8:24]
    first = begin[0] * side + end[0]
    second = first if is_line else begin[1] * side + end[1]
    ticks = work_of(tables, begin[0], end[0]) + (0 if is_line else work_of(tables, begin[1], end[1]))
    found = NEVER
    for one in range(tables.first_option[first], tables.first_option[first + 1]):
        option[0] = one
        for two in range(tables.first_option[second], tables.first_option[second + 1]):
            option[1] = two
            extra = tables.extra[one] + (0 if is_line else tables.extra[two])
            work = tables.microbatches * (ticks + extra)
            dear = extra >= fewest and (found <= enough or work > best)
            if counted == TICKS and (dear or work >= cap):
                break  # later options take no fewer ticks
            if counted == TICKS:
                bound = device_bound(tables, device, stage, begin, end, option, heap, later)
            else:
                bound = device_excess(tables, device, begin, end, option)
            found = min(found, bound)
            if bound < cap:
                fewest = min(fewest, extra)
            if counted == BYTES and found <= enough:
                return found, fewest
            if is_line:
                break
    return found, fewest


@compiled
def expand(
    tables: Tables,
    device: int,
    x: int,
    y: int,
    cap: int,
    counted: int,
    shares: Shares,
    scratch: Ints,
    found: Ints,
) -> int:
    """Write to `found` the ways in which `device` can take its stages from (x, y), and count them.

    A way counts if the device's own bound and the least bound of the devices after it are both below `cap`.
    The parameters other than `found` are those of `fill`, which must have filled `shares`. Return the number
    of ways. Each has a row of eight numbers in `found`: the new x, the new y, the recompute options of the
    first and the second stage, the bound of the device, the least bound of the devices after it, the
    `roughness` of its stages plus the ticks of recomputation, and the same of the devices after it. If
    `found` has too few rows, the last ways are counted but not written.
    """
    most = most_of(tables, counted, cap, device)
    layers, side, count, is_line = len(tables.forward) - 1, len(tables.forward), 0, tables.kind == LINE
    stage, begin, end, option, heap = scratch[0:2], scratch[2:4], scratch[4:6], scratch[6:8], scratch[8:24]
    for new_x in range(x + fewest_first(tables, device), layers + 1):
        if amount(tables, counted, x, new_x) > most:
            break
        for step in range(fewest_taken(tables, device), layers + 1):
            new_y = next_y(tables, y, step)
            if is_beyond(tables, counted, most, x, new_x, y, new_y):
                break
            then, later = shares.least[device + 1, new_x, new_y], shares.again[device + 1, new_x, new_y]
            if then < cap:
                place(tables, device, scratch, x, new_x, y, new_y)
                first = begin[0] * side + end[0]
                second = first if is_line else begin[1] * side + end[1]
                for one in range(tables.first_option[first], tables.first_option[first + 1]):
                    option[0] = one
                    for two in range(tables.first_option[second], tables.first_option[second + 1]):
                        option[1] = two
                        if counted == TICKS:
                            bound = device_bound(tables, device, stage, begin, end, option, heap, later)
                        else:
                            bound = device_excess(tables, device, begin, end, option)
                        if bound < cap:
                            if count < len(found):
                                found[count, 0], found[count, 1] = new_x, new_y
                                found[count, 2], found[count, 3] = one, two
                                found[count, 4], found[count, 5] = bound, then
                                more = tables.extra[one] + (0 if is_line else tables.extra[two])
                                rough = roughness(tables, x, new_x, y, new_y)
                                found[count, 6] = rough + more  # of equally even ones, least recomputation
                                found[count, 7] = shares.total[device + 1, new_x, new_y] + later
                            count += 1
                        if is_line:
                            break
            if is_line:
                break
    return count
