"""Narrower instances whose bounds hold for one with copies, flushes, fused backwards or a step.

Formulas are asked about these. Searches for bounds know all rules but copies themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tightpipe.model.costs import Costs, Memory, MicrobatchClass, MicrobatchSlice, Objective, sums
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind

from ..queues import Rule, is_modelled

KNOWN = frozenset(Rule) - {Rule.OFFLOAD, Rule.EMPTY}
"""The rules that prefixes know. Windows, and with them the other searches for bounds, know empty stages, too.

Prefixes leave one out if another item would fit before the item that it starts. At the same time, two items
may each fit before the other if one takes no time.
"""

_Times = TypeVar("_Times", Costs, MicrobatchClass, MicrobatchSlice)


def is_searchable(instance: Instance) -> bool:
    """Return whether prefixes know all rules of the instance, and can count its operations in 16 bits."""
    counted = instance.units * instance.placement.stages_per_device
    return counted <= np.iinfo(np.int16).max and is_modelled(instance, *KNOWN)


class Relaxed(NamedTuple):
    """An instance that costs less than another one, whatever the schedules.

    - `instance`: an instance without fused backwards that are shorter than B and W, and in which a step takes
      no more than its operations.
    - `around`: no schedule of the other instance costs less than the optimum of this one plus these ticks.
    """

    instance: Instance
    around: int


def relaxed(instance: Instance) -> tuple[Relaxed, ...]:
    """Return those of `narrower` if every stage has a B and a W, which formulas need.

    The result is empty where a stage lacks B or W, but for a B of stage 0.

    Nobody waits for a B of stage 0. So a W alone there is a fused backward of as many ticks, which frees as
    much memory at its end, and which another schedule may split.
    """
    instance = _with_first_backward(without_copies(instance))
    return narrower(instance) if instance.complete else ()


@lru_cache(maxsize=64)
def narrower(instance: Instance) -> tuple[Relaxed, ...]:
    """Return narrower instances, whose bounds plus `around` hold for `instance`.

    They have no copies, no flushes, no fused backwards, and no more to a step than its operations.
    An instance that is narrow itself is returned alone, with 0. The result is empty if a fused backward takes
    a single tick.

    Flushes between iterations only restrict more, and are left out. What may leave a device takes no memory
    there (`without_copies`). Fused backwards are cut in two (`split_backwards`). Where a step takes more than
    its operations, the objective becomes `makespan`. The first operation of all is an F of stage 0, which
    starts no earlier than that stage is ready. After the last operation of all its stage has yet to be
    reduced, and the optimizer of its device to run. So a step takes at least the makespan, the ticks until
    stage 0 is ready, and the least ticks of reduction and optimizer together.
    """
    if instance.iterations > 1:
        instance = replace(instance, flush=False)
    found, step = split_backwards(without_copies(instance)), instance.barrier
    if step is None:
        return tuple(Relaxed(one, 0) for one in found)
    held = [(s, device) for route in instance.placement.routes for s, device in enumerate(route)]
    last = min(step.reduce[s] + step.optimizer[device] for s, device in held)  # type: ignore[index]
    around: int = step.ready[0] + last  # type: ignore[index]
    return tuple(Relaxed(replace(one, objective=Objective.MAKESPAN, step=None), around) for one in found)


@lru_cache(maxsize=64)
def without_copies(instance: Instance) -> Instance:
    """Return an instance without copies, in which what may leave a device takes no memory there.

    No optimum of it is above that of `instance`. So every bound and proof that uses memory and knows no
    copies is asked about it.

    Let F of a stage add f, of which m may leave, and let its W free w. In the new instance F adds f - m, W
    frees the smaller of w and f - m, and B frees the rest. Take a schedule of `instance` and leave out its
    copies. All other operations keep their times, and wait for nothing new. From the start of F to the end
    of B, a device held f of the microbatch, or f - m while a part was away; and then w, until W ended. In
    the new instance it holds f - m at first, and then no more than w. So the limits are kept.
    """
    if instance.offload is None:
        return instance
    away: Any = instance.offload.memory
    classes = [replace(one, memory=_resident(one.memory, away)) for one in instance.classes]
    slices = [replace(one, memory=_resident(one.memory, away)) for one in instance.slices]
    memory = _resident(instance.memory, away)
    return replace(instance, memory=memory, classes=classes, slices=slices, offload=None)


def _resident(memory: Memory | None, away: Sequence[int]) -> Memory:
    """Return what F, B and W add where what may leave takes no memory: B frees that much less, then W."""
    assert memory is not None
    stays = []
    deltas: Any = memory.forward, memory.backward, memory.weight
    for f, b, w, most in zip(*deltas, away, strict=True):
        leaves = min(most, -b - w)  # an instance may have less, if its classes have their own
        by_backward = min(leaves, -b)
        stays.append((f - leaves, b + by_backward, w + leaves - by_backward))
    forward, backward, weight = zip(*stays, strict=True)
    return replace(memory, forward=forward, backward=backward, weight=weight)


def _with_first_backward(instance: Instance) -> Instance:
    """Return an instance where a lone W of stage 0 is a BW of equal length, which saves nothing in a pair."""
    costs: Any = _with_first(instance.costs)
    classes = [_with_first(one) for one in instance.classes]
    slices = [_with_first(one) for one in instance.slices]
    if costs.pairs and costs is not instance.costs:
        sums_at_0 = (f + costs.fused[0] for f in costs.forward)
        costs = replace(costs, pairs=[(t, *row[1:]) for t, row in zip(sums_at_0, costs.pairs, strict=True)])
    return replace(instance, costs=costs, classes=classes, slices=slices)


def _with_first(costs: _Times) -> _Times:
    backward: Any = costs.backward
    weight: Any = costs.weight
    if backward[0] or not weight[0]:
        return costs
    ticks, *rest = costs.fused or sums(backward, weight)  # type: ignore[misc]
    return replace(costs, backward=(ticks, *backward[1:]), fused=(ticks, *rest))


@lru_cache(maxsize=64)
def split_backwards(instance: Instance) -> tuple[Instance, ...]:
    """Return instances without fused backwards, none of which has an optimum above that of `instance`.

    An instance whose fused backwards take as long as B and W is returned itself. The result is empty if a
    fused backward takes a single tick, because it cannot be cut into a B and a W of at least one tick each.

    Let B, W and BW of a stage take b, w and u ticks. Take any b' and w' with b' <= b, w' <= w and
    b' + w' <= u, in place of b and w, and let a BW take b' + w'. Then every schedule of `instance` gives one
    of the new instance that costs no more:

    - A BW becomes a B' and, right after it, a W', both within the time of the BW. A single B or W becomes a
      B' or W' that begins with it. So a device still runs one operation at a time, and its first start and
      its last end do not move apart.
    - B' ends no later than the B or BW from which it comes. So what waits for its result may start when it
      did. Messages leave in the same sequence as before, and none of them later. A W' begins no earlier than
      its B' ends.
    - B' and W' free the memory of B and of W, each no later than before.
    - An F that runs together with a BW still does, for as long. One that runs together with a single B took
      the sum of both durations; F and B' fit into this time one after the other.
    - Flushes between iterations stay, because every operation stays within the time of the one from which it
      comes.

    Each class of microbatches has times of its own, and b' and w' of its own. The sum b' + w' may be as large
    as min(b + w, u). Two choices with this sum are returned, as far as they differ: the longest B', which
    makes the paths through the model long, and the longest W'.
    """
    classes = range(len(instance.class_counts))
    times = [
        [instance.duration(k, s, c) for k in _BACKWARDS] for s in range(instance.stages) for c in classes
    ]
    if all(b + w == u for b, w, u in times):
        return (instance,)
    if any(b and w and u < 2 for b, w, u in times):
        return ()
    found = (_cut(instance, longest) for longest in (OpKind.B, OpKind.W))
    return tuple(dict.fromkeys(found))


_BACKWARDS = OpKind.B, OpKind.W, OpKind.BW


def _cut(instance: Instance, longest: OpKind) -> Instance:
    """Return the instance with B' and W' of which one, B or W, is as long as it can be."""
    if not (instance.classes or instance.slices):
        costs = _cut_times(instance.costs, longest)
        return replace(instance, costs=replace(costs, fused=None))
    classes = [replace(_cut_times(one, longest), fused=None) for one in instance.classes]
    slices = [replace(_cut_times(one, longest), fused=None) for one in instance.slices]
    return replace(instance, costs=replace(instance.costs, fused=None), classes=classes, slices=slices)


def _cut_times(costs: _Times, longest: OpKind) -> _Times:
    """Return costs with B' and W' in place of B and W; where there is no BW, they stay."""
    stages = zip(costs.backward, costs.weight, costs.fused, strict=True)  # type: ignore[arg-type]
    cut = [_cut_one(b, w, u, longest) if b and w else (b, w) for b, w, u in stages]
    backward, weight = zip(*cut, strict=True)
    return replace(costs, backward=backward, weight=weight)


def _cut_one(b: int, w: int, u: int, longest: OpKind) -> tuple[int, int]:
    if longest is OpKind.B:
        b = min(b, u - 1)
        return b, min(w, u - b)
    w = min(w, u - 1)
    return min(b, u - w), w
