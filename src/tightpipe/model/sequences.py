"""The sequence in which microbatches that differ run, and orders that run them in a given sequence.

Most heuristics were made for microbatches that are alike. They say which operations run, and not of which
microbatch. Such an order is made for a *representative* instance, whose microbatches all cost what those of
the instance cost on average. Then its microbatches are renamed: the first one becomes the first of a given
sequence, and so on, on all devices. In the theory of flow shops, orders in which all machines have the jobs
in one sequence are called permutation schedules.

References
----------
Longest first, by the sum of squared lengths: verl, `dynamic_bsz` with balanced workloads. Clusters of similar
lengths: Jiang et al., "DynaPipe: Optimizing Multi-task Training through Dynamic Pipelines", arXiv:2311.10418,
section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from ..kernels.arrays import Ints
from .costs import Costs, Memory, PerStage
from .graph_arrays import arrays_of
from .instance import Instance
from .operation import OpKind
from .schedule import Order

_CLUSTERS = 4


def _short_at_both_ends(rising: Ints) -> Ints:
    return np.concatenate([rising[::2], rising[1::2][::-1]])


def _cyclic(rising: Ints) -> Ints:
    clusters = np.array_split(rising[::-1], min(_CLUSTERS, len(rising)))
    return np.array([part[k] for k in range(len(clusters[0])) for part in clusters if k < len(part)])


SEQUENCES: dict[str, Callable[[Ints], Ints]] = {
    "arrival": np.sort,
    "longest-first": lambda rising: rising[::-1],
    "shortest-first": lambda rising: rising,
    "short-at-ends": _short_at_both_ends,
    "cyclic": _cyclic,
}
"""Functions that put microbatches, which are given by rising work, into a sequence.

- `arrival`: by number, as they come.
- `short-at-ends`: every other one by rising work, and then the rest backwards, so that the longest are in the
  middle.
- `cyclic`: four clusters of similar work, from each of which one microbatch runs in turn.
"""


def sequence_of(instance: Instance, name: str) -> Ints:
    """Return the numbers of the microbatches in one of `SEQUENCES`."""
    work = np.array([one.work for one in instance.class_costs])[arrays_of(instance).mb_class]
    return np.asarray(SEQUENCES[name](np.argsort(work, kind="stable")))


def by_route(instance: Instance, sequence: Ints) -> Ints:
    """Return the microbatches of each route in a sequence of all, shape (routes, n / routes)."""
    routes = len(instance.placement.routes)
    route = np.array([instance.route(m) for m in range(instance.microbatches)])[sequence]
    return np.stack([sequence[route == r] for r in range(routes)])


def renamed(instance: Instance, order: Order, sequence: Ints) -> Order:
    """Return an order whose microbatches, in the sequence of their numbers, became those of another sequence.

    Microbatches keep their routes.
    """
    name = np.zeros(instance.microbatches, np.int64)
    name[by_route(instance, np.arange(instance.microbatches)).ravel()] = by_route(instance, sequence).ravel()
    operations = order.operations.copy()
    operations[:, 2] = name[operations[:, 2]]
    return Order(operations, order.offsets, order.pairs)


def representative(instance: Instance, *, largest: bool = False) -> Instance:
    """Return the instance with microbatches that are alike, each of which takes what is usual on average.

    If `largest` is set, each takes at every stage the most memory that any of them takes there, both from F
    to B and from B to W. An order of the result then fits into the memory of the instance, whatever the
    sequence, unless a device cannot hold such a microbatch. Its limit is then higher in the result.
    """
    share = np.array(instance.class_counts) / instance.microbatches

    def each(read: Callable[[int, int], int]) -> Ints:
        return np.array([[read(s, c) for s in range(instance.stages)] for c in range(len(share))])

    def mean(kind: OpKind) -> PerStage:
        ticks = each(partial(instance.duration, kind))
        return tuple(np.maximum(ticks.max(axis=0) > 0, np.rint(share @ ticks)).astype(np.int64).tolist())

    costs = Costs(
        mean(OpKind.F),
        mean(OpKind.B),
        mean(OpKind.W),
        instance.costs.comm,
        link_occupancy=instance.costs.link_occupancy,
        fused=mean(OpKind.BW),
    )
    memory = instance.memory
    if memory is not None:
        held, passing, kept = (
            amount.max(axis=0) if largest else np.rint(share @ amount).astype(np.int64)
            for amount in (
                each(partial(instance.memory_delta, OpKind.F)),
                each(instance.memory_while_running),
                -each(partial(instance.memory_delta, OpKind.W)),
            )
        )
        kept = np.minimum(held, kept)
        memory = Memory((held + passing).tolist(), (kept - held).tolist(), (-kept).tolist())
    free = replace(instance, costs=costs, memory=memory, classes=(), offload=None)
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    if memory is None or None in limits:
        return free
    enough = [max(limit or 0, free.smallest_limit(device)) for device, limit in enumerate(limits)]
    return replace(free, memory=replace(memory, limit=enough))
