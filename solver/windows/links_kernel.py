"""Links on which messages wait for each other, compiled: when the message of an item can leave.

A device's messages leave a link in the sequence of their items, `occupancy` ticks apart.
"""

from __future__ import annotations

from typing import Any

from tightpipe.kernels.compiled import compiled

_FAR = 2**60
_DEEP = 16  # messages looked at


@compiled
def leaves_from(net: Any, box: Any, item: int) -> int:
    """Return the least time at which the item's message leaves.

    It leaves after every set of messages that surely leave before it: the earliest end among their items,
    and `occupancy` for each.
    """
    value, place = box.value, box.place
    queue = net.queue[item]
    start, device = len(net.queue) + item * net.members.shape[1], net.device[queue]
    for b in range(len(place)):
        place[b] = value[start + b] if _shares(net, device, b, queue) else 0
    least, bottom = value[item] + net.duration[queue], _FAR
    for count in range(1, _DEEP):
        latest, at = -_FAR, -1
        for b in range(len(place)):
            if place[b] > 0:
                there = net.members[device, b]
                end = value[net.first[there] + place[b] - 1] + net.duration[there]
                if end > latest:
                    latest, at = end, b
        if at < 0:
            break
        place[at] -= 1
        bottom = min(bottom, latest)
        least = max(least, bottom + count * net.occupancy)
    return int(least)


@compiled
def leaves_by(net: Any, box: Any, item: int) -> int:
    """Return the largest time at which the item's message leaves: the mirror image of `leaves_from`."""
    value, place = box.value, box.place
    queue = net.queue[item]
    start, device = len(net.queue) + item * net.members.shape[1], net.device[queue]
    for b in range(len(place)):
        there = net.members[device, b]
        place[b] = _FAR
        if _shares(net, device, b, queue):
            place[b] = net.first[there] + value[len(value) // 2 + start + b]
    most, top = due(net, box, item), -_FAR
    for count in range(1, _DEEP):
        soonest, at = _FAR, -1
        for b in range(len(place)):
            if place[b] < _FAR and place[b] < net.first[net.members[device, b] + 1]:
                last = due(net, box, place[b])
                if last < soonest:
                    soonest, at = last, b
        if at < 0:
            break
        place[at] += 1
        top = max(top, soonest)
        most = min(most, top - count * net.occupancy)
    return int(most)


@compiled
def due(net: Any, box: Any, item: int) -> int:
    """Return when the item's message must leave for its receiver to start in time."""
    queue = net.queue[item]
    receiver = net.first[net.receiver[queue]] + item - net.first[queue]
    return int(box.value[len(box.value) // 2 + receiver] - net.travel[queue])


@compiled
def _shares(net: Any, device: int, slot: int, queue: int) -> bool:
    """Whether the slot's queue sends over the same link."""
    there = net.members[device, slot]
    return bool(there >= 0 and net.link[there] == net.link[queue])
