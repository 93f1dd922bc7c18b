"""Instances without fused backwards whose lower bounds hold for an instance that has them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind


@lru_cache(maxsize=64)
def split_backwards(instance: Instance) -> tuple[Instance, ...]:
    """Return instances without fused backwards, none of which has an optimum above that of `instance`.

    An instance whose fused backwards take as long as B and W is returned itself. The result is empty if a
    fused backward takes a single tick, because it cannot be cut into a B and a W of at least one tick each.

    Notes
    -----
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

    The sum b' + w' may be as large as min(b + w, u). Two choices with this sum are returned, as far as they
    differ: the longest B', which makes the paths through the model long, and the longest W'.
    """
    if instance.costs.fused is None:
        return (instance,)
    stages = range(instance.stages)
    backward, weight, fused = (
        [instance.duration(kind, stage) for stage in stages] for kind in (OpKind.B, OpKind.W, OpKind.BW)
    )
    if min(fused) < 2:
        return ()
    long_b = [min(b, u - 1) for b, u in zip(backward, fused, strict=True)]
    long_w = [min(w, u - 1) for w, u in zip(weight, fused, strict=True)]
    rest_w = [min(w, u - b) for w, u, b in zip(weight, fused, long_b, strict=True)]
    rest_b = [min(b, u - w) for b, u, w in zip(backward, fused, long_w, strict=True)]
    found = {
        replace(instance, costs=replace(instance.costs, backward=tuple(b), weight=tuple(w), fused=None)): None
        for b, w in ((long_b, rest_w), (rest_b, long_w))
    }
    return tuple(found)
