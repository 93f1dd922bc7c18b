"""Bounds of all ways to give layers to devices, by dynamic programming over the devices.

The bound of a device depends only on where its own stages begin and end, and on which of their layers are
recomputed. The bound of a partition is the largest bound of a device. The least bound of all partitions is
found by letting one device after another take its stages from the layers that are left.
"""

from __future__ import annotations

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled
from .device_bound_kernel import NEVER, device_bound, device_excess
from .model_arrays import Tables

LINE, FOLDED, LOOPED, JOINED, TURNED = range(5)
"""How each device in turn takes its stages from the layers that are left.

`LINE`: one stage from the front. `FOLDED`: one stage from the front and one from the back. `LOOPED`: one
stage from the front of each half of the stages. `JOINED`: one stage from the front, and from the back the
layers of all its later stages, which are equal; the last layer of the model goes to the last device.
`TURNED`: likewise, but the last layer goes to the first device.
"""
TICKS, BYTES = 0, 1
"""What is minimized: the largest bound of a device in ticks, or the most bytes that a device lacks."""


@compiled
def fill(
    tables: Tables,
    kind: int,
    devices: int,
    middle: int,
    cap: int,
    counted: int,
    least: Ints,
    total: Ints,
    again: Ints,
    scratch: Ints,
    device: int,
    begin: int,
    end: int,
) -> None:
    """For some *remainders*, find how the other devices share them so that their largest bound is least.

    A remainder is a set of layers that some devices leave to the others. The bound of a device is its
    `device_bound` in ticks, or the bytes that it lacks, as `counted` says. In a partition whose cost is below
    `cap`, the devices after one recompute for at least as long as `again` says of what is left for them, as
    their bounds are below `cap` too. So this counts in the bound of the device before them.

    Devices take their stages in ascending order. The remainder is given by the number of devices that already
    have their stages, and by two layers x and y. `LINE`: the layers from x on are left, and y is 0. `FOLDED`:
    the layers from x to y - 1 are left. `LOOPED`: the layers from x to `middle` - 1 and those from y on are
    left. `JOINED`, `TURNED`: as many layers as those from x to y - 1 are left, and maybe the last layer.

    - `tables`: the arrays of the configuration, with `chunks` 1 for `LINE` and else 2; see `Tables.joined`.
    - `kind`: how devices take their stages, e.g. `LINE`.
    - `devices`: the number p of devices.
    - `middle`: the first layer of the second half of the stages; only used for `LOOPED`.
    - `cap`: every bound that is not below `cap` is replaced by `NEVER`.
    - `counted`: what is minimized: `TICKS` or `BYTES`.
    - `least`, `total`, `again`: three results of shape (p + 1, L + 1, L + 1) for L layers, indexed by the
      three numbers of a remainder. For the best way to give the remainder to the other devices, `least` gets
      the largest bound of one of these devices, and `total` the sum of the `roughness` of their stages. The
      best way has the least largest bound; among several such ways, it is the one with the least sum. `again`
      gets the least sum of the ticks that recomputation adds on these devices, over all ways whose bounds are
      below `cap`.
    - `scratch`: working space for 24 numbers.
    - `device`: the number of devices that already have their stages. The remainders of `device + 1` must be
      filled.
    - `begin`, `end`: the remainders with the numbers `begin` to `end - 1` are filled; the remainder (x, y)
      has number x (L + 1) + y.
    """
    layers = len(tables.forward) - 1
    for number in range(begin, end):
        x, y = number // (layers + 1), number % (layers + 1)
        least[device, x, y] = NEVER
        if can_be_left(tables, kind, devices, middle, cap if counted == TICKS else NEVER, device, x, y):
            _take(tables, kind, device, devices, middle, cap, counted, least, total, again, scratch, x, y)


@compiled
def fill_end(kind: int, devices: int, layers: int, middle: int, least: Ints) -> None:
    """Fill the remainders when all devices have their stages; the arguments are those of `fill`.

    For these remainders, the entries of `total` are 0.
    """
    for x in range(layers + 1):
        for y in range(layers + 1):
            least[devices, x, y] = 0 if is_empty(kind, x, y, layers, middle) else NEVER


@compiled
def from_behind(kind: int) -> bool:
    """Return whether devices also take layers from the back of a remainder (x, y), so that y falls."""
    return kind != LINE and kind != LOOPED


@compiled
def has_last(kind: int, device: int) -> bool:
    """Return whether the model's last layer is left before `device` takes its stages: `JOINED`, `TURNED`."""
    return kind == JOINED or device == 0


@compiled
def fewest_taken(tables: Tables, kind: int, device: int, devices: int) -> int:
    """Return the fewest layers by which y changes when a device takes its stages, as in `fill`."""
    if tables.joined == 0:
        return 0 if kind == LINE else 1
    return tables.joined - (1 if device == (devices - 1 if kind == JOINED else 0) else 0)


@compiled
def is_empty(kind: int, x: int, y: int, layers: int, middle: int) -> bool:
    """Return whether no layer is left in the remainder (x, y), which `fill` explains."""
    if kind == LINE:
        return x == layers and y == 0
    if from_behind(kind):
        return x == y
    return x == middle and y == layers


@compiled
def is_rest(
    tables: Tables, kind: int, x: int, y: int, layers: int, middle: int, after: int, device: int
) -> bool:
    """Return whether (x, y) can be the remainder (see `fill`) before `device` takes its stages.

    The devices before `device` must have taken at least one layer for each of their stages. `after` is the
    number of the other devices, `device` included; at least one layer must be left for each of their stages.
    If `device` is 0, all layers must be left.
    """
    if kind == LINE:
        return y == 0 and x >= device and layers - x >= after and (device > 0 or x == 0)
    if kind == FOLDED:
        return x >= device and layers - y >= device and y - x >= 2 * after and (device > 0 or y - x == layers)
    if kind != LOOPED:
        last = 1 if has_last(kind, device) else 0
        taken = layers - y - last >= device * tables.joined and x >= device
        return taken and y - x >= after * (1 + tables.joined) - last and (device > 0 or y - x == layers - 1)
    first = device > 0 or (x == 0 and y == middle)
    return first and x >= device and y - middle >= device and middle - x >= after and layers - y >= after


@compiled
def can_be_left(
    tables: Tables, kind: int, devices: int, middle: int, cap: int, device: int, x: int, y: int
) -> bool:
    """Return whether (x, y) can remain before `device` takes its stages, in a partition below the cap.

    In such a partition, no device has more than `cap` ticks of work for all microbatches. The parameters are
    explained at `fill`, and the other conditions at `is_rest`.
    """
    layers, after = len(tables.forward) - 1, devices - device
    if not is_rest(tables, kind, x, y, layers, middle, after, device):
        return False
    left, most = left_work(tables, kind, device, x, y, layers, middle), float(cap) / tables.microbatches
    return left <= after * most and work_of(tables, 0, layers) - left <= device * most


@compiled
def work_of(tables: Tables, begin: int, end: int) -> int:
    forward = tables.forward[end] - tables.forward[begin]
    backward = tables.backward[end] - tables.backward[begin]
    return int(forward + backward + tables.weight[end] - tables.weight[begin])


@compiled
def left_work(tables: Tables, kind: int, device: int, x: int, y: int, layers: int, middle: int) -> int:
    """Return the ticks of one microbatch in the layers of the remainder (x, y), without recomputation."""
    if kind == LINE:
        return work_of(tables, x, layers)
    if from_behind(kind):
        last = kind != FOLDED and has_last(kind, device)
        return work_of(tables, x, y) + (work_of(tables, layers - 1, layers) if last else 0)
    return work_of(tables, x, middle) + work_of(tables, y, layers)


@compiled
def _take(
    tables: Tables,
    kind: int,
    device: int,
    devices: int,
    middle: int,
    cap: int,
    counted: int,
    least: Ints,
    total: Ints,
    again: Ints,
    scratch: Ints,
    x: int,
    y: int,
) -> None:
    """Try all stages that `device` can take from the remainder (x, y), and write the best result.

    The entries of `least` and `total` for this remainder are written, from those of the device after it. The
    parameters are explained at `fill`. If no largest bound is below `cap`, nothing is written.
    """
    layers = len(tables.forward) - 1
    best, summed, fewest = cap, NEVER, NEVER
    for new_x in range(x + 1, layers + 1):
        if not_affordable(tables, counted, cap, x, new_x, 0, 0):
            break
        for step in range(fewest_taken(tables, kind, device, devices), layers + 1):
            new_y = next_y(kind, y, step)
            if new_y < 0 or new_y > layers or (from_behind(kind) and new_y < new_x):
                break
            if not_affordable(tables, counted, cap, x, new_x, min(y, new_y), max(y, new_y)):
                break
            then, later = least[device + 1, new_x, new_y], again[device + 1, new_x, new_y]
            if then < NEVER and (then <= best or (counted == TICKS and later < fewest)):
                place(tables, kind, device, devices, scratch, x, new_x, y, new_y)
                here, more = cheapest(
                    tables, kind, device, counted, scratch, cap, best, then, later, fewest - later
                )
                fewest = min(fewest, later + more)
                largest = max(then, here)
                if here < NEVER and largest < cap:
                    sums = (
                        roughness(tables, kind, devices, x, new_x, y, new_y) + total[device + 1, new_x, new_y]
                    )
                    if largest < best or (largest == best and sums < summed):
                        best, summed = largest, sums
            if kind == LINE:
                break
    if summed < NEVER:
        least[device, x, y], total[device, x, y], again[device, x, y] = best, summed, fewest


@compiled
def next_y(kind: int, y: int, step: int) -> int:
    """Return the new y of a remainder (x, y), as in `fill`, after a device takes `step` layers at y."""
    return y - step if from_behind(kind) else y + step


@compiled
def not_affordable(tables: Tables, counted: int, best: int, b0: int, e0: int, b1: int, e1: int) -> bool:
    """Return whether two stages have more than `best` ticks of work for all microbatches on one device.

    The stages have the layers `b0` to `e0 - 1` and `b1` to `e1 - 1`; a device with one stage has `b1` equal
    to `e1`. If the work exceeds `best`, it does so with more layers, too, and the caller need not try them.
    The result is false if `counted` is `BYTES`.
    """
    ticks = tables.microbatches * (work_of(tables, b0, e0) + work_of(tables, b1, e1))
    return counted == TICKS and ticks > best


@compiled
def roughness(tables: Tables, kind: int, devices: int, x: int, new_x: int, y: int, new_y: int) -> int:
    """Return how uneven the stages are that a device takes when (x, y) becomes (`new_x`, `new_y`).

    The work of each stage is expressed in per cent of the mean work of a stage, and squared. The result is
    the sum of these squares, over the stages of the device; joined stages count as equal. The parameters are
    explained at `fill`; (x, y) is the remainder before the device takes its stages, and (`new_x`, `new_y`)
    after.
    """
    stages = len(tables.hop)
    mean, others = work_of(tables, 0, len(tables.forward) - 1) / stages, max(1, stages // devices - 1)
    first = int(100 * work_of(tables, x, new_x) / mean)
    second = 0 if kind == LINE else int(100 * work_of(tables, min(y, new_y), max(y, new_y)) / mean / others)
    return first * first + others * second * second


@compiled
def place(
    tables: Tables,
    kind: int,
    device: int,
    devices: int,
    scratch: Ints,
    x: int,
    new_x: int,
    y: int,
    new_y: int,
) -> None:
    """Write to `scratch` the stages that a device takes when (x, y) becomes (`new_x`, `new_y`).

    Entries 0 and 1 get the numbers of the stages, entries 2 and 3 their first layers, and entries 4 and 5 the
    layers after their last ones. For `LINE`, only the first entry of each pair is written. The parameters are
    explained at `fill`; (x, y) is the remainder before the device takes its stages, and (`new_x`, `new_y`)
    after. Layers of joined stages are placed as late as they can be: a layer follows for each stage after the
    last one of the device, less those that are left out of the tables.
    """
    scratch[0], scratch[2], scratch[4] = device, x, new_x
    if kind == LINE:
        return
    stages = len(tables.hop)
    scratch[1] = stages - 1 - device if kind in (FOLDED, TURNED) else stages - devices + device
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
    kind: int,
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
    side = len(tables.forward)
    stage, begin, end, option, heap = scratch[0:2], scratch[2:4], scratch[4:6], scratch[6:8], scratch[8:24]
    first = begin[0] * side + end[0]
    second = begin[1] * side + end[1] if kind != LINE else first
    ticks = work_of(tables, begin[0], end[0]) + (0 if kind == LINE else work_of(tables, begin[1], end[1]))
    found = NEVER
    for one in range(tables.first_option[first], tables.first_option[first + 1]):
        option[0] = one
        for two in range(tables.first_option[second], tables.first_option[second + 1]):
            option[1] = two
            extra = tables.extra[one] + (0 if kind == LINE else tables.extra[two])
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
            if kind == LINE:
                break
    return found, fewest


@compiled
def expand(
    tables: Tables,
    kind: int,
    devices: int,
    device: int,
    x: int,
    y: int,
    cap: int,
    least: Ints,
    total: Ints,
    again: Ints,
    scratch: Ints,
    found: Ints,
) -> int:
    """Write to `found` the ways in which `device` can take its stages from (x, y), and count them.

    A way counts if the device's own bound and the least bound of the devices after it are both below `cap`.
    The parameters other than `found` are those of `fill`, which must have filled `least` and `total`. Return
    the number of ways. Each has a row of eight numbers in `found`: the new x, the new y, the recompute
    options of the first and the second stage, the bound of the device, the entry of `least` for the devices
    after it, the `roughness` of its stages plus the ticks of recomputation, and the entry of `total` for the
    devices after it. If `found` has too few rows, the last ways are counted but not written.
    """
    layers, side, count = len(tables.forward) - 1, len(tables.forward), 0
    stage, begin, end, option, heap = scratch[0:2], scratch[2:4], scratch[4:6], scratch[6:8], scratch[8:24]
    for new_x in range(x + 1, layers + 1):
        if not_affordable(tables, TICKS, cap, x, new_x, 0, 0):
            break
        for step in range(fewest_taken(tables, kind, device, devices), layers + 1):
            new_y = next_y(kind, y, step)
            if new_y < 0 or new_y > layers or (from_behind(kind) and new_y < new_x):
                break
            if not_affordable(tables, TICKS, cap, x, new_x, min(y, new_y), max(y, new_y)):
                break
            then, later = least[device + 1, new_x, new_y], again[device + 1, new_x, new_y]
            if then < cap:
                place(tables, kind, device, devices, scratch, x, new_x, y, new_y)
                first = begin[0] * side + end[0]
                second = begin[1] * side + end[1] if kind != LINE else first
                for one in range(tables.first_option[first], tables.first_option[first + 1]):
                    option[0] = one
                    for two in range(tables.first_option[second], tables.first_option[second + 1]):
                        option[1] = two
                        bound = device_bound(tables, device, stage, begin, end, option, heap, later)
                        if bound < cap:
                            if count < len(found):
                                found[count, 0], found[count, 1] = new_x, new_y
                                found[count, 2], found[count, 3] = one, two
                                found[count, 4], found[count, 5] = bound, then
                                more = tables.extra[one] + (0 if kind == LINE else tables.extra[two])
                                rough = roughness(tables, kind, devices, x, new_x, y, new_y)
                                found[count, 6] = rough + more  # of equally even ones, least recomputation
                                found[count, 7] = total[device + 1, new_x, new_y] + later
                            count += 1
                        if kind == LINE:
                            break
            if kind == LINE:
                break
    return count
