"""A bound of the cost from the stages of one device, valid whatever stages the other devices have."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled
from .model_arrays import NO_LIMIT, Tables

_AT_ONCE = float("inf")
NEVER = 2**62
"""The bound of stages for which there is no schedule; as a cost or a cap it stands for infinity."""


@compiled
def device_bound(
    tables: Tables, device: int, stage: Ints, begin: Ints, end: Ints, option: Ints, heap: Ints, later: int
) -> int:
    """Return a lower bound, in ticks, on the cost of every schedule in which a device has the given stages.

    The bound is `NEVER` if one microbatch does not fit the device's memory, or if a stage of the device is
    not possible (`is_possible`).

    - `tables`: the placement and the model.
    - `device`: the number of the device.
    - `stage`, `begin`, `end`, `option`: four arrays with one entry per stage of the device: the number of the
      stage, ascending; its first layer; the layer after its last one; and the number of its recompute option.
    - `heap`: working space for `8 * chunks` numbers, which are overwritten.
    - `later`: ticks that recomputation adds at least to the B's of one microbatch, together, on devices of
      which all stages come after this device's first one; 0 is always right.

    Notes
    -----
    The result is the largest of four bounds. Three follow from the arguments of `solver.bounds.formulas`:
    `ramps`, `chain`, and `two_times` with times counted within the span of device 0. The fourth is
    `memory_time`. The stages of other devices count with the ticks of their layers without recomputation, but
    for `later` ticks, which a microbatch takes between the last F and the last B of this device. Messages
    count with their shortest time, and layers of other devices at full speed, so that the bound holds however
    the rest of the model is cut. B's and W's count with the ticks of `Layer.least`: for a stage, the sums
    over its layers are at most its own B and W, and together at most its BW. So `solver.bounds.relaxed`
    says that the cost does not rise.

    Where orders are fixed (`Tables.fixed`), B and W of a stage are one operation, and it is known how many
    F's precede the first B, and how many B's follow the last F. The same arguments hold from the first F of
    the device's last stage to its first B, and from its last F to the last B of that stage. The device ends
    with the last B of its first stage, after which the gradient still passes the stages below. What is in
    flight before the first B has to fit. If stages take longer than here, no order costs less.

    What may leave to the host takes no memory in the first three bounds, as in
    `solver.bounds.relaxed.without_copies`. One microbatch does not fit if `Instance.smallest_limit` is above
    the device's limit; of a stage that is joined, the largest of its parts has to fit (`_largest_share`).

    Where the later stages of a device are joined as one (`Tables.joined`), their equal layers lie as late as
    they can, so that the paths behind them are as short as they can be. How these layers are shared among the
    stages does not change what they take of memory and time together, nor, if none is recomputed, how many
    bytes a tick of F, B and W takes. If some are, or one of them is the last layer of the model, the bytes
    are left out of the arguments that would need them stage by stage.

    Gradients pass from the last stage down to the first one that has a B or a W, and all stages above that
    one have a B. The arguments about B's and W's hold for the stages of the device that have some. At its
    other stages there are only F's, which keep no memory when they have ended.

    Where the makespan counts, a step takes at least until the device has ended, reduced the gradients of the
    stage that ends last and run its optimizer; and at least until stage 0, whose layers include the first
    one, has done so. Before the device starts, the first microbatch has to come, and the parameters.
    """
    n, limit = tables.microbatches, tables.room[device]
    if limit < NO_LIMIT:
        limit -= taken_apart(tables, begin, end, option)
    load = _load(tables, device, begin, end, option)
    if load.work >= NEVER or load.needed > limit:
        return NEVER
    paths, work = _paths(tables, stage, begin, end, load.extra, later), load.work
    last, tail, tail_of_first = n * work, _tail(tables, begin, end), 0
    if _reaches_the_first(tables):
        tail_of_first = exchange(tables, tables.reduce, tables.trained[1]) + optimizer(tables, 0, 1)
    arrival = 0
    if tables.whole:
        arrival = max(
            exchange(tables, tables.gather, tables.trained[1]) + paths.arrival,
            exchange(tables, tables.gather, tables.trained[end[0]] - tables.trained[begin[0]]),
        )
    if not paths.returns:
        found = arrival + max(paths.chain, n * work) + tail
        if tables.whole:
            found = max(found, arrival + n * work + paths.until_end + tail_of_first)
        return int(found)
    staying = load.held - load.leaving
    warm, cool, left, apart = _ramps(tables, device, begin, end, option, limit, staying, heap, paths)
    last += idle(warm, cool, apart)
    found = arrival + max(paths.chain, last) + tail
    if limit < NO_LIMIT:
        most = min(limit, n * load.held)
        found = max(found, memory_time(tables, device, stage, begin, end, option, most, later))
    if tables.whole:
        # after the device's last F that microbatch goes on to stage 0; the device may end before it or later
        if tables.fixed and has_backward(tables, end[0]):
            return int(max(found, arrival + last + paths.below + tail_of_first))
        warm = max(0, warm) if apart else 0
        return int(max(found, arrival + n * work + warm - left + paths.until_end + tail_of_first))
    between = n * work - paths.until_b + max(0, warm) - left
    if device != 0 and between > 0 and _reaches_the_first(tables):
        found = max(found, paths.arrival + paths.until_b + between + paths.until_end)
    return int(found)


@compiled
def _ramps(
    tables: Tables,
    device: int,
    begin: Ints,
    end: Ints,
    option: Ints,
    limit: int,
    staying: int,
    heap: Ints,
    paths: _Paths,
) -> tuple[int, int, int, bool]:
    """Return the least idle ticks before the first B and after the last F, and the most work after that F.

    They may be negative, and the last number says whether that B comes before that F. If orders are fixed
    they say which operations are in between, else how much memory these take.
    """
    if not tables.fixed:
        before = _most_forwards(tables, device, begin, end, option, limit, heap)
        left = _most_held(tables, device, begin, end, option, limit, heap)
        apart = tables.microbatches * staying > limit
        return paths.until_b - before, paths.after_f - left, left, apart
    before, turn, left, wind, apart = 0, 0, 0, 0, False
    for i in range(tables.chunks):
        f, b, _ = durations(tables, device, begin[i], end[i], option[i])
        before, turn = before + tables.first[device, i] * f, turn + tables.turn[device, i] * f
        left, wind = left + tables.last[device, i] * b, wind + tables.wind[device, i] * b
        apart = apart or tables.first[device, i] < tables.microbatches
    warm, cool = paths.until_b - before, paths.after_f - left
    return max(warm, paths.around - turn), max(cool, paths.around - wind), left, apart


@compiled
def idle(warm: int, cool: int, apart: bool) -> int:
    """Return the idle ticks of two ramps; if they may overlap, only the longer one counts."""
    return max(0, warm) + max(0, cool) if apart else max(0, warm, cool)


@compiled
def exchange(tables: Tables, rate: float, parameters: int) -> int:
    """Return the ticks of an exchange between pipelines of so many parameters, never above the exact number.

    `rate` is the ticks of one of them, `Tables.reduce` or `Tables.gather`.
    """
    ticks = rate * parameters
    return math.ceil((tables.latency + ticks) * (1 - 1e-12)) if ticks > 0 else 0


@compiled
def optimizer(tables: Tables, begin: int, end: int) -> int:
    """Return the ticks of the optimizer for the layers `begin` to `end - 1`, never above the exact number."""
    ticks = tables.optimizer * (tables.trained[end] - tables.trained[begin])
    found: int = math.ceil(ticks * (1 - 1e-12))
    return found


@compiled
def _tail(tables: Tables, begin: Ints, end: Ints) -> int:
    """Return the least ticks that the device still takes when its last operation has ended."""
    least, updated = NEVER, 0.0
    for i in range(tables.chunks):
        least = min(least, exchange(tables, tables.reduce, _least_trained(tables, i, begin[i], end[i])))
        updated += tables.optimizer * (tables.trained[end[i]] - tables.trained[begin[i]])
    return least + math.ceil(updated * (1 - 1e-12))


@compiled
def _least_trained(tables: Tables, i: int, begin: int, end: int) -> int:
    """Return the fewest parameters with gradients of the i-th stage of a device, or of one joined in it."""
    if tables.joined == 0 or i == 0:
        return int(tables.trained[end] - tables.trained[begin])
    if tables.joined < len(tables.hop) // len(tables.room) - 1:
        return 0  # the stage may have none but layers that are left out of the tables
    one = tables.trained[begin + 1] - tables.trained[begin]
    return int(min(one, tables.trained[end] - tables.trained[end - 1]))


@compiled
def _is_uneven(tables: Tables, i: int, end: int, option: int) -> bool:
    """Return whether the i-th stage of a device is joined from stages whose bytes per tick may differ."""
    alike = tables.saved[option] + tables.spared[option] == 0 and end < len(tables.forward) - 1
    return tables.joined > 0 and i > 0 and not alike


class _Load(NamedTuple):
    """Sums over the stages of a device, for one microbatch."""

    work: int  # ticks of F, B and W; `NEVER` if a stage is not possible
    held: int  # bytes that stay when the F's have ended
    leaving: int  # the part of them that may leave
    needed: int  # bytes that the device needs
    extra: int  # ticks that recomputation adds to the B's


@compiled
def _load(tables: Tables, device: int, begin: Ints, end: Ints, option: Ints) -> _Load:
    work, held, leaving, flying, needed, extra = 0, 0, 0, 0, 0, 0
    for i in range(tables.chunks):
        if not is_possible(tables, begin[i], end[i]):
            return _Load(NEVER, 0, 0, 0, 0)
        f, b, w = durations(tables, device, begin[i], end[i], option[i])
        work += f + b + w
        extra += tables.extra[option[i]]
        here, away = _held(tables, begin[i], end[i], option[i]), _leaving(tables, begin[i], end[i], option[i])
        if tables.joined > 0 and i > 0:
            largest = _largest_share(tables, begin[i], end[i], option[i])
            needed = max(needed, flying - leaving + largest)
        held, leaving, flying = held + here, leaving + away, flying + tables.flight[device, i] * here
        needed = max(needed, flying - leaving + (0 if tables.joined > 0 and i > 0 else away))
        if here == 0:
            needed = max(needed, taken(tables, begin[i], end[i], option[i]))
    return _Load(work, held, leaving, needed, extra)


@compiled
def _largest_share(tables: Tables, begin: int, end: int, option: int) -> int:
    """Return the least bytes that F takes at that stage of several joined ones where it takes most.

    It takes at least the mean there. If nothing is recomputed, the stage with most layers has at least the
    mean number of them, rounded up; all are equal but for the last one of the model, which may take less.
    """
    later = len(tables.hop) // len(tables.room) - 1
    most = -(-_held(tables, begin, end, option) // later)
    if tables.saved[option] == 0 and end > begin:
        layers = -(-(end - begin) // later)
        equal = tables.held[begin + layers] - tables.held[begin]
        most = max(most, min(equal, tables.held[end] - tables.held[end - layers]))
    return int(most)


@compiled
def _reaches_the_first(tables: Tables) -> bool:
    """Return whether stage 0 has a B or a W in every partition."""
    return bool(tables.backward[1] + tables.weight[1] > 0)


@compiled
def has_backward(tables: Tables, end: int) -> bool:
    """Return whether a possible stage, whose last layer is `end - 1`, has a B or a W."""
    return bool(tables.backward[end] + tables.weight[end] > 0)


class _Paths(NamedTuple):
    """Lower bounds, in ticks, on the times between operations of one microbatch.

    Here lo and hi are the lowest and the highest stage of the device that is bounded, and g is the lowest one
    that has a B or a W. The times of `until_b` and `after_f` need such a stage, as `returns` says. If stage 0
    may have neither B nor W (`_reaches_the_first`), no message of a gradient counts in `until_end`.
    """

    returns: bool  # whether there is a stage g
    arrival: int  # from the start of F at stage 0 to the start of F at lo
    until_b: int  # from the start of F at lo to the start of B, or of W without B, at hi
    after_f: int  # from the end of F at hi to the end of W at g
    until_end: int  # from the end of F at hi to the end of the last operation of the microbatch
    chain: int  # from the start of F at lo to the end of W at g, or without a stage g to the end of F at hi
    around: int  # from the end of F at hi to the start of B at hi
    below: int  # from the end of W at lo to the end of the last B of the microbatch


@compiled
def _paths(tables: Tables, stage: Ints, begin: Ints, end: Ints, extra: int, later: int) -> _Paths:
    low, high, top = stage[0], stage[tables.chunks - 1], len(tables.hop) - 1
    first, last, layers = begin[0], end[tables.chunks - 1], len(tables.forward) - 1
    f_low = tables.forward[layers] - tables.forward[first] + tables.hop[top] - tables.hop[low]
    f_high = tables.forward[layers] - tables.forward[last] + tables.hop[top] - tables.hop[high]
    b_high = tables.backward[layers] - tables.backward[last] + tables.back[top] - tables.back[high]
    b_all = tables.backward[layers] + (tables.back[top] if _reaches_the_first(tables) else 0) + extra + later
    arrival, until_end = tables.forward[first] + tables.hop[low], f_high + b_all + tables.weight[1]
    g = 0
    while g < tables.chunks and not has_backward(tables, end[g]):
        g += 1
    if g == tables.chunks:
        return _Paths(False, arrival, 0, 0, until_end, f_low - f_high, 0, 0)
    b_g = tables.backward[layers] - tables.backward[begin[g]] + tables.back[top] - tables.back[stage[g]]
    down = b_g + extra + tables.weight[end[g]] - tables.weight[begin[g]] + (later if g == 0 else 0)
    turn = f_low + b_high + (later if tables.chunks == 1 else 0)
    around = f_high + b_high + (later if tables.chunks == 1 else 0)
    below = tables.backward[first] + (tables.back[low] if _reaches_the_first(tables) else 0)
    return _Paths(True, arrival, turn, f_high + down, until_end, f_low + down, around, below)


@compiled
def durations(tables: Tables, device: int, begin: int, end: int, option: int) -> tuple[int, int, int]:
    """Return the least ticks of F, B and W of a stage of a device for one microbatch.

    The stage has the layers `begin` to `end - 1`, and `option` is the number of its recompute option.
    """
    return (
        tables.own[device, 0, end] - tables.own[device, 0, begin],
        tables.own[device, 1, end] - tables.own[device, 1, begin] + tables.extra[option],
        tables.own[device, 2, end] - tables.own[device, 2, begin],
    )


@compiled
def is_possible(tables: Tables, begin: int, end: int) -> bool:
    """Return whether the layers `begin` to `end - 1` can be a stage; see `Model.is_possible`."""
    if begin == end:
        return tables.empty
    return bool(
        tables.forward[end] > tables.forward[begin]
        and (
            tables.passing[end] > tables.passing[begin] or tables.backward[begin] + tables.weight[begin] == 0
        )
    )


@compiled
def taken(tables: Tables, begin: int, end: int, option: int) -> int:
    """Return the bytes that F of a stage takes."""
    return int(tables.held[end] - tables.held[begin] - tables.saved[option])


@compiled
def _held(tables: Tables, begin: int, end: int, option: int) -> int:
    """Return the bytes that stay when F of a stage has ended."""
    return taken(tables, begin, end, option) if has_backward(tables, end) else 0


@compiled
def _leaving(tables: Tables, begin: int, end: int, option: int) -> int:
    """Return the part of the bytes of `_held` that may leave the device."""
    if not has_backward(tables, end):
        return 0
    return int(min(tables.most_leaving, tables.leaving[end] - tables.leaving[begin] - tables.away[option]))


@compiled
def _staying(tables: Tables, begin: int, end: int, option: int) -> int:
    """Return the other part of these bytes."""
    return _held(tables, begin, end, option) - _leaving(tables, begin, end, option)


@compiled
def _freed(tables: Tables, begin: int, end: int, option: int) -> int:
    """Return the bytes that W of a stage frees: without a B, all that stay."""
    if tables.backward[end] > tables.backward[begin]:
        return int(tables.freed[end] - tables.freed[begin] - tables.spared[option])
    return _held(tables, begin, end, option)


@compiled
def memory_time(
    tables: Tables, device: int, stage: Ints, begin: Ints, end: Ints, option: Ints, most: int, later: int
) -> int:
    """Return a lower bound on the cost, in ticks, from how long microbatches hold memory on a device.

    - `tables`, `device`, `stage`, `begin`, `end`, `option`, `later`: see `device_bound`.
    - `most`: a number of bytes that the activations on the device never exceed: their limit, or what all
      microbatches together take.

    Notes
    -----
    At each stage, a microbatch holds the bytes of its F from the start of that F to the end of its B. Between
    the two, its F's and B's at all later stages run. It holds the part of the bytes that W frees for longer,
    at least while W runs. Bytes times ticks, summed over all microbatches and the stages of the device, are
    at most the integral of the memory in use over the span of the device. The span is at most the cost.

    The integral is less than `most` times the span, because memory is not full at either end of the span. The
    first F's fill it: F's run one after another and take their bytes when they start. So t ticks after its
    first start the device holds at most the bytes of its largest F plus r t, where r is the largest ratio of
    bytes to ticks of an F. The area between that line and `most` is a triangle. The last B's and W's, each of
    which frees its bytes at its end, empty the memory in the same way. All F's together last at least as long
    as filling the memory takes at the rate r, and all B's and W's at least as long as emptying it. So the two
    triangles do not overlap in time.

    What leaves to the host is away between the end of F and the start of the backward, but for the ticks of
    both copies. If that time is as short as it can be, this saves what `_held_ticks` says; any longer time
    adds no more to what is saved than to what is held. Of n microbatches, each saves at most once; and as
    copies run one after another, they save in a tick at most the rate of the copies times the longest time
    that anything is away. So `most` times the span is at least what is held less either of the two. (See
    `solver.bounds.formulas.copies`. Memory still fills and empties no faster: copies back take only what F's
    have taken before, and backwards free all of it in the end.)
    """
    fills, empties, first, last = 0.0, 0.0, 0, 0
    for i in range(tables.chunks):
        if _is_uneven(tables, i, end[i], option[i]):
            return 0
        f, b, w = durations(tables, device, begin[i], end[i], option[i])
        held = _held(tables, begin[i], end[i], option[i])
        by_w = _freed(tables, begin[i], end[i], option[i])
        if held > 0:
            fills, first = max(fills, held / f), max(first, held)
        last = max(last, held - by_w, by_w)
        if held > by_w:
            empties = max(empties, (held - by_w) / b)
        if by_w > 0:
            empties = max(empties, by_w / w if w > 0 else _AT_ONCE)
    if most <= 0 or fills <= 0.0 or empties <= 0.0:
        return 0
    short = float(max(0, most - first)) ** 2 / (2 * fills) + float(max(0, most - last)) ** 2 / (2 * empties)
    held_ticks, saved, longest = _held_ticks(tables, stage, begin, end, option, later)
    needed = tables.microbatches * held_ticks + short
    found = needed / (most + tables.copy_rate * longest) * (1 - 1e-12)
    if saved > 0.0:
        found = max(found, (needed * (1 - 1e-12) - tables.microbatches * saved) / most)
    return int(found)


@compiled
def _held_ticks(
    tables: Tables, stage: Ints, begin: Ints, end: Ints, option: Ints, later: int
) -> tuple[float, float, float]:
    """Return the least sum, over a device's stages, of a microbatch's bytes times the ticks it holds them.

    The other two numbers are what copies save of it at most, and the longest time that something is away.
    """
    layers, top = len(tables.forward) - 1, len(tables.hop) - 1
    summed, extra, saved, longest = 0.0, 0, 0.0, 0.0
    for i in range(tables.chunks - 1, -1, -1):
        extra += tables.extra[option[i]] + (later if i == 0 else 0)
        at = begin[i] if tables.joined == 0 or i == 0 else end[i] - 1  # joined stages may have a layer each
        there = tables.forward[layers] - tables.forward[at] + tables.hop[top] - tables.hop[stage[i]]
        again = tables.backward[layers] - tables.backward[at] + tables.back[top] - tables.back[stage[i]]
        w = tables.weight[end[i]] - tables.weight[at]
        summed += float(_held(tables, begin[i], end[i], option[i])) * (there + again + extra)
        summed += float(_freed(tables, begin[i], end[i], option[i])) * w
        away = _leaving(tables, begin[i], end[i], option[i])
        if away > 0:
            own = tables.forward[end[i]] - tables.forward[at] + tables.backward[end[i]] - tables.backward[at]
            copies = 0.0 if tables.joined > 0 and i > 0 else away * tables.copy_ticks
            gone = max(0.0, there + again + extra - own - tables.extra[option[i]] - copies)
            saved, longest = saved + away * gone, max(longest, gone)
    return summed, saved, longest


@compiled
def taken_apart(tables: Tables, begin: Ints, end: Ints, option: Ints) -> int:
    """Return the sum of the bytes of state and the transient bytes of a device's stages.

    Activations cannot use these bytes. The reserve, which they cannot use either, is not included. State is
    what is there all the time, the gradients until they are reduced, and what is gathered at once. Transient
    bytes are those that B takes only while it recomputes; the stage with the most of them counts. The stages
    are given as in `device_bound`.
    """
    state, transient = _gathered(tables, begin, end), 0
    for i in range(tables.chunks):
        state += _bytes(tables.static, tables.parameters[end[i]] - tables.parameters[begin[i]])
        state += _bytes(tables.gradient, tables.trained[end[i]] - tables.trained[begin[i]])
        transient = max(transient, tables.transient[option[i]])
    return int(state + transient)


@compiled
def _bytes(each: float, parameters: int) -> int:
    """Return the bytes of so many parameters, never above the exact number."""
    found: int = math.ceil(parameters * each * (1 - 1e-12))
    return found


@compiled
def _gathered(tables: Tables, begin: Ints, end: Ints) -> int:
    """Return the bytes of parameters that are gathered at once on a device: its largest stages count.

    Joined stages are at least as large as stages of equal size, of which some are gathered beside the first
    one, or without it.
    """
    if tables.gathered <= 0.0:
        return 0
    found, first = 0, tables.parameters[end[0]] - tables.parameters[begin[0]]
    if tables.joined > 0:
        later = len(tables.hop) // len(tables.room) - 1
        share = (tables.parameters[end[1]] - tables.parameters[begin[1]]) / later
        beside = first + (tables.resident - 1) * share
        return _bytes(tables.gathered, math.floor(max(beside, min(tables.resident, later) * share)))
    for i in range(tables.chunks):
        own, larger = tables.parameters[end[i]] - tables.parameters[begin[i]], 0
        for j in range(tables.chunks):
            other = tables.parameters[end[j]] - tables.parameters[begin[j]]
            larger += 1 if other > own or (other == own and j < i) else 0
        if larger < tables.resident:
            found += _bytes(tables.gathered, own)
    return found


@compiled
def device_excess(tables: Tables, device: int, begin: Ints, end: Ints, option: Ints) -> int:
    """Return how many bytes the device lacks to hold one microbatch of its stages, at least 0.

    The stages are given as in `device_bound`. The result is `NEVER` if a stage is not possible.
    """
    load = _load(tables, device, begin, end, option)
    if load.work >= NEVER:
        return NEVER
    return int(max(0, taken_apart(tables, begin, end, option) + load.needed - tables.room[device]))


@compiled
def _most_forwards(
    tables: Tables, device: int, begin: Ints, end: Ints, option: Ints, limit: int, heap: Ints
) -> int:
    """Return an upper bound on the total ticks of F's on a device that together take at most `limit` bytes.

    The numbers in `heap` are overwritten.
    """
    unit = 0
    for i in range(tables.chunks):
        uneven = _is_uneven(tables, i, end[i], option[i])  # then the bytes say nothing
        heap[2 * i] = 0 if uneven else _staying(tables, begin[i], end[i], option[i])
        heap[2 * i + 1] = durations(tables, device, begin[i], end[i], option[i])[0]
        unit = math.gcd(unit, heap[2 * i])
    return _most_work(heap, tables.chunks, tables.microbatches, _usable(tables, limit, unit))


@compiled
def _usable(tables: Tables, limit: int, unit: int) -> int:
    """Return the largest multiple of `unit` up to `limit`, both in bytes.

    What a device holds of its stages is a sum of such multiples, so it never takes more. The stages that are
    joined may have any share of the bytes that they have together; then the limit stays.
    """
    known = limit < NO_LIMIT and unit > 0 and tables.joined == 0
    return limit - limit % unit if known else limit


@compiled
def _most_held(
    tables: Tables, device: int, begin: Ints, end: Ints, option: Ints, limit: int, heap: Ints
) -> int:
    """Return an upper bound on the ticks of B's and W's that a device has left to run after its F's.

    The microbatches that still have to run B or W hold at most `limit` bytes. One that lacks only W at a
    stage holds fewer bytes there than one that lacks B and W. So each stage gives one or two pairs (bytes,
    ticks) to `_most_work`. If W alone has more ticks per byte than B and W together, there are two pairs: one
    for W alone, and one for what B adds. Else there is one pair, for B and W together. The numbers in `heap`
    are overwritten.
    """
    steps, unit = 0, 0
    for i in range(tables.chunks):
        if not has_backward(tables, end[i]):
            continue
        _, b, w = durations(tables, device, begin[i], end[i], option[i])
        held = _staying(tables, begin[i], end[i], option[i])
        freed = min(held, _freed(tables, begin[i], end[i], option[i]))
        if _is_uneven(tables, i, end[i], option[i]):
            held, freed = 0, 0
        unit = math.gcd(unit, math.gcd(held, freed))
        if float(w) * held <= float(b + w) * freed:
            heap[2 * steps], heap[2 * steps + 1] = held, b + w
            steps += 1
        else:
            heap[2 * steps], heap[2 * steps + 1] = freed, w
            heap[2 * steps + 2], heap[2 * steps + 3] = held - freed, b
            steps += 2
    return _most_work(heap, steps, tables.microbatches, _usable(tables, limit, unit))


@compiled
def _most_work(heap: Ints, steps: int, count: int, limit: int) -> int:
    """Return an upper bound on the ticks of a choice of pairs (bytes, ticks) with at most `limit` bytes.

    The pairs are the first `steps` ones in `heap`. Each may be chosen up to `count` times, and a fraction of
    it may be chosen, too. The pairs in `heap` are overwritten.
    """
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
