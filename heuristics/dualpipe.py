"""DualPipe and DualPipe-V, which run the forward of one microbatch together with the backward of another.

On each device both schedules consist of the same eight phases, which the published description calls steps.
In DualPipe, a device holds one stage of each direction of a bidirectional pipeline; in DualPipe-V, it holds
the two stages of a V. Of the two stages of a device, the "near" one is closer to the first stage of its
direction than the "far" one. The functions for families raise errors as those of `family` do.

References
----------
DualPipe: DeepSeek-AI, arXiv:2412.19437, section 3.2.1 and figure 5. DualPipe-V: Qi et al., "DualPipe could be
better without the Dual" (2025).
"""

from __future__ import annotations

from collections import deque
from itertools import count

from tightpipe.base.errors import NoScheduleError
from tightpipe.model.instance import Instance
from tightpipe.model.operation import Operation, OpKind
from tightpipe.model.schedule import Order

from .family import check_placement, within_limits

Slot = tuple[Operation, ...]


def dualpipe_order(instance: Instance) -> Order:
    """Return the order of DualPipe, the bidirectional schedule of DeepSeek-V3."""
    p, n = instance.devices, instance.microbatches
    _check(instance, "dualpipe", "bidirectional")
    devices = []
    for device in range(p):
        mirror = p - 1 - device
        first_half, second_half = range(n // 2), range(n // 2, n)
        near, far = (first_half, second_half) if device < mirror else (second_half, first_half)
        # the near stage is the one with the lower number
        walk = _Walk(min(device, mirror), near, max(device, mirror), far)
        devices.append(walk.steps(min(device, mirror), p // 2))
    return within_limits(instance, "dualpipe", Order.from_slots(devices))


def dualpipe_v_order(instance: Instance) -> Order:
    """Return the order of DualPipe-V, which has one direction through a V and one copy of the parameters."""
    p, n = instance.devices, instance.microbatches
    _check(instance, "dualpipe-v", "v")
    walks = [_Walk(d, range(n), 2 * p - 1 - d, range(n)) for d in range(p)]
    order = Order.from_slots([walk.steps(d, p) for d, walk in enumerate(walks)])
    return within_limits(instance, "dualpipe-v", order)


def _check(instance: Instance, name: str, placement: str) -> None:
    check_placement(instance, name, placement)
    least, n = 2 * instance.devices, instance.microbatches
    if n < least:
        raise NoScheduleError(f"{name} needs at least 2 microbatches per device: {least}, not {n}")


class _Walk:
    """The walk of one device through the eight phases, which yields the slots of the device.

    Side 0 is the near stage and side 1 the far one. The state consists of the next microbatch of F and B on
    each side, and of the B's whose W has not run yet, the oldest first.
    """

    def __init__(self, near: int, near_microbatches: range, far: int, far_microbatches: range) -> None:
        self._stage = (near, far)
        self._microbatches = (near_microbatches, far_microbatches)
        self._next = {(kind, side): count() for kind in (OpKind.F, OpKind.B) for side in (0, 1)}
        self._pending: deque[Operation] = deque()

    def steps(self, rank: int, ranks: int) -> list[Slot]:
        """Return the slots of one device, in sequence; a slot has one operation or two that run together.

        `rank` is the distance, in devices, to the nearest one at which microbatches enter. There are `ranks`
        such distances: as many as devices on a V, and half of that for two directions that mirror each other.
        """
        outer = ranks - rank - 1
        steady = len(self._microbatches[0]) - 2 * ranks + rank + 1
        slots = [self._forward(0) for _ in range(2 * outer)]
        for _ in range(rank + 1):
            slots += [self._forward(0), self._forward(1)]
        for _ in range(outer):
            slots += [self._input_gradient(1), self._weight(), self._forward(1)]
        for i in range(steady):
            # On the innermost device the first F and BW run one after the other, for a smaller bubble.
            apart = i == 0 and outer == 0
            slots += [self._forward(0), self._backward(1)] if apart else [self._both(0, 1)]
            slots.append(self._both(1, 0))
        for _ in range(outer):
            slots += [self._backward(1), self._both(1, 0)]
        return slots + self._cool_down(rank, outer)

    def _cool_down(self, rank: int, outer: int) -> list[Slot]:
        """Return the slots after the last F: fused backwards, B's, W's and B's in turn, then W's."""
        slots = []
        for k in range(2 * (rank + 1)):
            side = 1 - k % 2
            slots.append(self._backward(side) if k < rank + 1 else self._input_gradient(side))
        for _ in range(outer):
            slots += [self._weight(), self._input_gradient(0)]
        return slots + [self._weight() for _ in range(rank + 1)]

    def _operation(self, kind: OpKind, counted: OpKind, side: int) -> Operation:
        microbatch = self._microbatches[side][next(self._next[counted, side])]
        return Operation(kind, self._stage[side], microbatch)

    def _forward(self, side: int) -> Slot:
        return (self._operation(OpKind.F, OpKind.F, side),)

    def _backward(self, side: int) -> Slot:
        return (self._operation(OpKind.BW, OpKind.B, side),)

    def _both(self, forward: int, backward: int) -> Slot:
        return (*self._forward(forward), *self._backward(backward))

    def _input_gradient(self, side: int) -> Slot:
        op = self._operation(OpKind.B, OpKind.B, side)
        self._pending.append(op)
        return (op,)

    def _weight(self) -> Slot:
        op = self._pending.popleft()
        return (op._replace(kind=OpKind.W),)
