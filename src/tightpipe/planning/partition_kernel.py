"""Bounds of partitions: of the stages of one device, and of all ways to give layers to the devices.

The bound of a device depends on nothing but where its own stages begin and end, and on which of their layers
are recomputed. So the least bound that a configuration allows, the largest one of a device made as small as
possible, is found by dynamic programming: device after device takes its stages from what is left.
"""

from __future__ import annotations

from math import ceil

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled
from .tables import NO_LIMIT, Tables

LINE, FOLDED, LOOPED = 0, 1, 2
"""How devices take their stages: one from the front; one from the front and one from the back; one of each half."""
NEVER = 2**62
TICKS, BYTES = 0, 1
"""What is made as small as possible: the largest bound of a device, or the most bytes that a device lacks."""


@compiled
def device_bound(
    tables: Tables, device: int, stage: Ints, begin: Ints, end: Ints, option: Ints, heap: Ints
) -> int:
    """Return a bound of the cost by the stages of one device, `NEVER` where they do not fit.

    The arguments of the bound are those of `solver.bounds.formulas.ramps`, of `two_times` in the frame of
    device 0, and of `chain`, and one more, of memory times time. The stages of other devices count with the
    ticks of their layers without recomputation, and messages with their shortest time, so that the bound holds
    however these are cut.

    Notes
    -----
    Memory times time: each microbatch holds what its F takes on the device at least from the start of that F, over
    the F's and B's of all later stages, until its B ends, and the part that W frees until W has run as well. Summed
    over stages and microbatches, these products of bytes and ticks are at most the limit of the device times its
    span, which is at most the cost.

    Parameters
    ----------
    tables
        The configuration.
    device
        The device.
    stage, begin, end, option
        Its stages, ascending, with their first layers, the layers after them, and how they are recomputed.
    heap
        Room for `8 * chunks` numbers.
    """
    chunks, n = tables.chunks, tables.microbatches
    layers, top = len(tables.forward) - 1, len(tables.hop) - 1
    work, held, extra = 0, 0, 0
    for i in range(chunks):
        f, b, w = durations(tables, begin[i], end[i], option[i])
        if f < 1 or b < 1 or w < 1:
            return NEVER
        work += n * (f + b + w)
        held += _held(tables, begin[i], end[i], option[i])
        extra += tables.extra[option[i]]
    limit = tables.room[device]
    if limit < NO_LIMIT:
        limit -= taken_apart(tables, begin, end, option)
        if held > limit:
            return NEVER
    first, last = begin[0], end[chunks - 1]
    low, high = stage[0], stage[chunks - 1]
    rest_f = tables.forward[layers] - tables.forward[last] + tables.hop[top] - tables.hop[high]
    arrival = tables.forward[first] + tables.hop[low]
    until_b = (
        (tables.forward[layers] - tables.forward[first] + tables.hop[top] - tables.hop[low])
        + (tables.backward[layers] - tables.backward[last])
        + (tables.back[top] - tables.back[high])
    )
    until_low = tables.backward[layers] - tables.backward[first] + tables.back[top] - tables.back[low] + extra
    until_start = tables.backward[layers] + tables.back[top] + extra
    own_w = tables.weight[end[0]] - tables.weight[first]
    after_f = rest_f + until_low + own_w
    before = _most_forwards(tables, begin, end, option, limit, heap)
    left = _most_held(tables, begin, end, option, limit, heap)
    head = 0
    if tables.whole:
        head = arrival
        after_f = max(after_f, rest_f + until_start + 1)
    warm, cool = max(0, until_b - before), max(0, after_f - left)
    idle = max(warm, cool) if n * held <= limit else warm + cool
    found = work + head + idle
    path = until_b - tables.backward[layers] + tables.backward[last] - tables.back[top] + tables.back[high]
    found = max(found, path + until_low + own_w)
    if 0 < limit < NO_LIMIT:
        found = max(found, int(n * _held_ticks(tables, stage, begin, end, option) / limit * (1 - 1e-12)))
    if not tables.whole and device != 0:
        first_b, ending = arrival + until_b, rest_f + until_start + max(1, tables.weight[1])
        between = work - min(before, until_b) - left
        if between > 0:
            found = max(found, first_b + between + ending)
    return found


@compiled
def durations(tables: Tables, begin: int, end: int, option: int) -> tuple[int, int, int]:
    """Return the ticks of F, B and W of a stage."""
    return (
        tables.forward[end] - tables.forward[begin],
        tables.backward[end] - tables.backward[begin] + tables.extra[option],
        tables.weight[end] - tables.weight[begin],
    )


@compiled
def _held(tables: Tables, begin: int, end: int, option: int) -> int:
    return tables.held[end] - tables.held[begin] - tables.saved[option]


@compiled
def _held_ticks(tables: Tables, stage: Ints, begin: Ints, end: Ints, option: Ints) -> float:
    """Return the least sum, over the stages of a device, of bytes held by one microbatch times ticks."""
    layers, top = len(tables.forward) - 1, len(tables.hop) - 1
    summed, extra = 0.0, 0
    for i in range(tables.chunks - 1, -1, -1):
        extra += tables.extra[option[i]]
        there = tables.forward[layers] - tables.forward[begin[i]] + tables.hop[top] - tables.hop[stage[i]]
        again = tables.backward[layers] - tables.backward[begin[i]] + tables.back[top] - tables.back[stage[i]]
        freed, w = (
            tables.freed[end[i]] - tables.freed[begin[i]],
            tables.weight[end[i]] - tables.weight[begin[i]],
        )
        held = _held(tables, begin[i], end[i], option[i])
        summed += float(held) * (there + again + extra) + float(freed) * w
    return summed


@compiled
def taken_apart(tables: Tables, begin: Ints, end: Ints, option: Ints) -> int:
    """Return the bytes of a device that no activation may take: static state and what recomputation takes."""
    static, transient = 0, 0
    for i in range(tables.chunks):
        parameters = tables.parameters[end[i]] - tables.parameters[begin[i]]
        static += int(ceil(parameters * tables.static * (1 - 1e-12)))  # never above the exact number
        transient = max(transient, tables.transient[option[i]])
    return static + transient


@compiled
def device_excess(tables: Tables, device: int, begin: Ints, end: Ints, option: Ints) -> int:
    """Return how many bytes the device lacks to hold one microbatch of its stages, at least 0.

    Where a stage has no F, B or W that takes time, it is no stage: the answer is `NEVER`.
    """
    needed = taken_apart(tables, begin, end, option)
    for i in range(tables.chunks):
        f, b, w = durations(tables, begin[i], end[i], option[i])
        if f < 1 or b < 1 or w < 1:
            return NEVER
        needed += _held(tables, begin[i], end[i], option[i])
    return max(0, needed - tables.room[device])


@compiled
def _most_forwards(tables: Tables, begin: Ints, end: Ints, option: Ints, limit: int, heap: Ints) -> int:
    """Return an upper bound on the ticks of F's that fit into the memory together, as `most_forwards` does."""
    for i in range(tables.chunks):
        heap[2 * i] = _held(tables, begin[i], end[i], option[i])
        heap[2 * i + 1] = tables.forward[end[i]] - tables.forward[begin[i]]
    return _most_work(heap, tables.chunks, tables.microbatches, limit)


@compiled
def _most_held(tables: Tables, begin: Ints, end: Ints, option: Ints, limit: int, heap: Ints) -> int:
    """Return an upper bound on the ticks of B's and W's that are held together, as `most_held` does.

    Where a pending W is denser work than the B before it, the two steps of the concave hull are one.
    """
    steps = 0
    for i in range(tables.chunks):
        _, b, w = durations(tables, begin[i], end[i], option[i])
        freed, held = (
            tables.freed[end[i]] - tables.freed[begin[i]],
            _held(tables, begin[i], end[i], option[i]),
        )
        if float(w) * held <= float(b + w) * freed:
            heap[2 * steps], heap[2 * steps + 1] = held, b + w
            steps += 1
        else:
            heap[2 * steps], heap[2 * steps + 1] = freed, w
            heap[2 * steps + 2], heap[2 * steps + 3] = held - freed, b
            steps += 2
    return _most_work(heap, steps, tables.microbatches, limit)


@compiled
def _most_work(heap: Ints, steps: int, count: int, limit: int) -> int:
    """Return an upper bound on the work of `count` each of some steps (memory, work) within the limit."""
    if limit >= NO_LIMIT:
        total = 0
        for i in range(steps):
            total += count * heap[2 * i + 1]
        return total
    room, work = float(limit), 0.0
    for _ in range(steps):
        best = -1
        for i in range(steps):
            memory, gain = heap[2 * i], heap[2 * i + 1]
            if gain >= 0 and (best < 0 or float(gain) * heap[2 * best] > float(heap[2 * best + 1]) * memory):
                best = i
        memory, gain = heap[2 * best], heap[2 * best + 1]
        taken = float(count) if memory == 0 else min(float(count), max(0.0, room) / memory)
        room -= taken * memory
        work += taken * gain
        heap[2 * best + 1] = -1
    return int(work * (1 + 1e-12) + 1e-6)


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
    scratch: Ints,
) -> None:
    """Find the least bound of what is left to the last devices, for each such rest.

    A *rest* is given by the number of devices that have their stages, and by two layers x and y. `LINE`: the
    layers from x on are left, and y is 0. `FOLDED`: those from x up to, not including, y. `LOOPED`: those from x up to
    `middle`, and from y on.

    Parameters
    ----------
    tables
        The configuration, with `chunks` 1 for `LINE` and else 2.
    kind, devices, middle
        How the p devices take their stages; `middle` only counts for `LOOPED`.
    cap
        Bounds of `cap` and more need not be told apart: they become `NEVER`.
    counted
        `TICKS` or `BYTES`.
    least, total
        Results of shape (p + 1, L + 1, L + 1): the least largest bound of the devices that are left, and how
        uneven their stages are where it is reached. Of equal bounds, the one of the most even stages is taken.
    scratch
        Room for 24 numbers.
    """
    layers = len(tables.forward) - 1
    _fill_end(kind, devices, layers, middle, least, total)
    everything = _work(tables, 0, layers)
    for device in range(devices - 1, -1, -1):
        after = devices - device
        for x in range(layers + 1):
            for y in range(layers + 1):
                least[device, x, y] = NEVER
                if not _is_rest(kind, x, y, layers, middle, after, device):
                    continue
                left = _left(tables, kind, x, y, layers, middle)
                if counted == TICKS and cap < NEVER:
                    most = float(cap) / tables.microbatches
                    if left > after * most or everything - left > device * most:
                        continue
                _take(tables, kind, device, devices, middle, cap, counted, least, total, scratch, x, y)


@compiled
def _fill_end(kind: int, devices: int, layers: int, middle: int, least: Ints, total: Ints) -> None:
    for x in range(layers + 1):
        for y in range(layers + 1):
            if kind == LINE:
                ended = x == layers and y == 0
            elif kind == FOLDED:
                ended = x == y
            else:
                ended = x == middle and y == layers
            least[devices, x, y] = 0 if ended else NEVER
            total[devices, x, y] = 0


@compiled
def _is_rest(kind: int, x: int, y: int, layers: int, middle: int, after: int, device: int) -> bool:
    """Return whether each device that is left, and each one before, can have a layer in each of its stages."""
    if kind == LINE:
        return y == 0 and x >= device and layers - x >= after and (device > 0 or x == 0)
    if kind == FOLDED:
        return x >= device and layers - y >= device and y - x >= 2 * after and (device > 0 or y - x == layers)
    first = device > 0 or (x == 0 and y == middle)
    return first and x >= device and y - middle >= device and middle - x >= after and layers - y >= after


@compiled
def _work(tables: Tables, begin: int, end: int) -> int:
    return (
        (tables.forward[end] - tables.forward[begin])
        + (tables.backward[end] - tables.backward[begin])
        + (tables.weight[end] - tables.weight[begin])
    )


@compiled
def _left(tables: Tables, kind: int, x: int, y: int, layers: int, middle: int) -> int:
    """Return the ticks of one microbatch in the layers of a rest."""
    if kind == LINE:
        return _work(tables, x, layers)
    if kind == FOLDED:
        return _work(tables, x, y)
    return _work(tables, x, middle) + _work(tables, y, layers)


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
    scratch: Ints,
    x: int,
    y: int,
) -> None:
    """Try all stages that the next device can take from a rest, and keep the best."""
    layers = len(tables.forward) - 1
    best, summed = cap, NEVER
    for new_x in range(x + 1, layers + 1):
        if not_affordable(tables, counted, best, x, new_x, 0, 0):
            break
        for step in range(layers + 1):
            new_y = _next(kind, y, step)
            if new_y < 0 or new_y > layers or (kind == FOLDED and new_y < new_x):
                break
            if kind == LOOPED and step == 0 or kind == FOLDED and step == 0:
                continue
            if not_affordable(tables, counted, best, x, new_x, min(y, new_y), max(y, new_y)):
                break
            then = least[device + 1, new_x, new_y]
            if then <= best and then < NEVER:
                here = _cheapest(tables, kind, device, devices, counted, scratch, x, new_x, y, new_y, best)
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
        least[device, x, y], total[device, x, y] = best, summed


@compiled
def _next(kind: int, y: int, step: int) -> int:
    return y - step if kind == FOLDED else y + step


@compiled
def not_affordable(tables: Tables, counted: int, best: int, b0: int, e0: int, b1: int, e1: int) -> bool:
    """Return whether the work of two intervals alone is above the best bound, and so is that of longer ones."""
    ticks = tables.microbatches * (_work(tables, b0, e0) + _work(tables, b1, e1))
    return counted == TICKS and ticks > best


@compiled
def roughness(tables: Tables, kind: int, devices: int, x: int, new_x: int, y: int, new_y: int) -> int:
    """Return the sum of the squares of the works of one or two stages, in per cent of a mean stage."""
    stages = devices if kind == LINE else 2 * devices
    mean = _work(tables, 0, len(tables.forward) - 1) / stages
    first = int(100 * _work(tables, x, new_x) / mean)
    second = 0 if kind == LINE else int(100 * _work(tables, min(y, new_y), max(y, new_y)) / mean)
    return first * first + second * second


@compiled
def place(
    kind: int, device: int, devices: int, scratch: Ints, x: int, new_x: int, y: int, new_y: int
) -> None:
    """Write the stages that a device takes to the scratch: their numbers, first layers and layers after them."""
    scratch[0], scratch[2], scratch[4] = device, x, new_x
    if kind != LINE:
        scratch[1] = 2 * devices - 1 - device if kind == FOLDED else devices + device
        scratch[3], scratch[5] = min(y, new_y), max(y, new_y)


@compiled
def _cheapest(
    tables: Tables,
    kind: int,
    device: int,
    devices: int,
    counted: int,
    scratch: Ints,
    x: int,
    new_x: int,
    y: int,
    new_y: int,
    best: int,
) -> int:
    """Return the least bound of a device with these stages over all ways to recompute their layers."""
    place(kind, device, devices, scratch, x, new_x, y, new_y)
    side = len(tables.forward)
    stage, begin, end, option, heap = scratch[0:2], scratch[2:4], scratch[4:6], scratch[6:8], scratch[8:24]
    first = begin[0] * side + end[0]
    second = begin[1] * side + end[1] if kind != LINE else first
    found = NEVER
    for one in range(tables.first_option[first], tables.first_option[first + 1]):
        option[0] = one
        for two in range(tables.first_option[second], tables.first_option[second + 1]):
            option[1] = two
            if counted == TICKS:
                bound = device_bound(tables, device, stage, begin, end, option, heap)
            else:
                bound = device_excess(tables, device, begin, end, option)
            found = min(found, bound)
            if kind == LINE:
                break
    return found


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
    scratch: Ints,
    found: Ints,
) -> int:
    """List the stages that the next device can take from a rest so that the bound stays below `cap`.

    Returns
    -------
    int
        The number of ways, of which each has a row in `found`: the new x and y, both options, the bound of
        this device and the least largest bound of the devices after it, how uneven its stages are and those
        after them. Rows that do not fit into `found` are counted, too.
    """
    layers, side, count = len(tables.forward) - 1, len(tables.forward), 0
    stage, begin, end, option, heap = scratch[0:2], scratch[2:4], scratch[4:6], scratch[6:8], scratch[8:24]
    for new_x in range(x + 1, layers + 1):
        if not_affordable(tables, TICKS, cap, x, new_x, 0, 0):
            break
        for step in range(layers + 1):
            new_y = _next(kind, y, step)
            if new_y < 0 or new_y > layers or (kind == FOLDED and new_y < new_x):
                break
            if kind != LINE and step == 0:
                continue
            if not_affordable(tables, TICKS, cap, x, new_x, min(y, new_y), max(y, new_y)):
                break
            then = least[device + 1, new_x, new_y]
            if then < cap:
                place(kind, device, devices, scratch, x, new_x, y, new_y)
                first = begin[0] * side + end[0]
                second = begin[1] * side + end[1] if kind != LINE else first
                for one in range(tables.first_option[first], tables.first_option[first + 1]):
                    option[0] = one
                    for two in range(tables.first_option[second], tables.first_option[second + 1]):
                        option[1] = two
                        bound = device_bound(tables, device, stage, begin, end, option, heap)
                        if bound < cap:
                            if count < len(found):
                                found[count, 0], found[count, 1] = new_x, new_y
                                found[count, 2], found[count, 3] = one, two
                                found[count, 4], found[count, 5] = bound, then
                                again = tables.extra[one] + (0 if kind == LINE else tables.extra[two])
                                rough = roughness(tables, kind, devices, x, new_x, y, new_y)
                                found[count, 6] = rough + again  # of equal ones, the least recomputation
                                found[count, 7] = total[device + 1, new_x, new_y]
                            count += 1
                        if kind == LINE:
                            break
            if kind == LINE:
                break
    return count
