"""The places in a program where the devices validate the previous optimizer step (post-validation).

Each device takes the optimizer step before the global gradient norm is known. During the next warm-up, the
partial norms are sent from the last device to the first, and each device then confirms its step or rolls it
back (Qi et al., arXiv:2401.10241, section 4).
"""

from __future__ import annotations

from ..core.instance import Instance
from ..core.operation import OpKind
from ..core.schedule import Schedule
from .node import Node, NodeType, chunks

Ranked = tuple[int, Node]  # (rank, node): nodes of equal time, on all devices, are sorted by rank


def post_validation(schedule: Schedule, *, published: bool) -> list[list[Ranked]]:
    """Return for each device the nodes that receive the norm, send it on and validate, with their ranks.

    Nodes of equal time, on all devices, are sorted by rank. The receive on a device has the time at which the
    next device sends the norm. With `published`, the receive has the time at which its own device validates,
    which is no earlier.
    """
    times = _times(schedule)
    return [_of_device(schedule.instance, device, times, published) for device in range(len(times))]


def _times(schedule: Schedule) -> list[int]:
    """Return when each device validates, in ticks.

    Device d of p validates one communication time before the F of microbatch 2(p - 1 - d) at the device's
    first stage on route 0; if the first iteration has no such microbatch on this route, the F of its last one
    counts. The device is then still in its warm-up, and computes while the norm arrives. No device validates
    before tick 0, or before the next device, which sends it the norm.
    """
    instance = schedule.instance
    starts = {
        (s, m): t
        for (k, s, m), t in zip(schedule.order.operations.tolist(), schedule.start.tolist(), strict=True)
        if k == OpKind.F
    }
    times, latest = [0] * instance.devices, 0
    for device in reversed(range(instance.devices)):
        stage = _first_stage(instance, device)
        microbatch = min(2 * (instance.devices - 1 - device), _block(instance) - 1)
        latest = max(latest, starts[stage, microbatch] - _comm_from_next(instance, device))
        times[device] = latest
    return times


def _block(instance: Instance) -> int:
    """Return how many microbatches of the first iteration take the first route."""
    return instance.microbatches // instance.iterations // len(instance.placement.routes)


def _first_stage(instance: Instance, device: int) -> int:
    return instance.placement.routes[0].index(device)


def _comm_from_next(instance: Instance, device: int) -> int:
    """Return how many ticks a message takes from the next device to `device`.

    For the last device, the message to the previous device counts; for a single device, the result is 0.
    """
    if device + 1 < instance.devices:
        return instance.comm(device + 1, device)
    return instance.comm(device, device - 1) if device else 0


def _of_device(instance: Instance, device: int, times: list[int], published: bool) -> list[Ranked]:
    stage, time, last = _first_stage(instance, device), times[device], instance.devices - 1
    chunk = chunks(instance.placement)[device][stage]
    rank = 3 * (last - device)
    nodes: list[Ranked] = []

    def add(at: int, kind: NodeType, stage: int, time: int, peer: int | None) -> None:
        nodes.append((at, Node(kind, device, chunk, stage, 0, time, time, peer)))

    if device < last:
        sender = _first_stage(instance, device + 1)
        # Unless `published`, a receive has the time and rank of its send, so that both stand together.
        at, received = (rank, time) if published else (rank - 2, times[device + 1])
        add(at, NodeType.RECV_POST_VALIDATION, sender, received, device + 1)
    if device:
        add(rank + 1, NodeType.SEND_POST_VALIDATION, stage, time, device - 1)
    add(rank + 2, NodeType.POST_VALIDATION, stage, time, None)
    return nodes
