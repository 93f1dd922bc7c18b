"""Find two times between which a device would have to work longer than they are apart."""

from __future__ import annotations

from .check_proof import RefutedError, Windows

Counts = list[list[int]]


def overload_step(windows: Windows, device: int) -> list[object] | None:
    """Return the step `overload` with the largest excess of a device, None if there is none."""
    best, step = 0, None
    ahead: tuple[int, int, Counts] | None = None  # the most work until a time, less that time
    for t in _times(windows, device):
        counts = _counts(windows, device, t)
        try:
            least, most = windows.worked(device, t, counts)
        except RefutedError:  # no counts are possible at all
            return ["overload", device, t, counts, t, counts]
        if ahead is not None and least - t - ahead[0] > best:
            best, step = least - t - ahead[0], ["overload", device, ahead[1], ahead[2], t, counts]
        if ahead is None or most - t < ahead[0]:
            ahead = most - t, t, counts
    return step


def _times(windows: Windows, device: int) -> list[int]:
    """Return the times at which the counts of the device change, as in `solver.bounds.searches`."""
    found = set()
    for queue in (windows.queues[q] for q in windows.on[device]):
        for i in range(queue.first, queue.end):
            early, late = windows.early[i], windows.late[i]
            found |= {early, early + queue.time - 1, late + 1, late + queue.time}
    return sorted(found)


def _counts(windows: Windows, device: int, t: int) -> Counts:
    """Return the counts that `Windows.worked` takes, for each queue of the device.

    Each count is shown by one item. Where windows along a queue are not in sequence, the first item counts
    that starts late enough, and the last one that starts early enough.
    """
    rows = []
    for queue in (windows.queues[q] for q in windows.on[device]):
        early, late = windows.early[queue.first : queue.end], windows.late[queue.first : queue.end]
        until_end, until_begin = t - queue.time, t - 1
        rows.append(
            [
                _last(late, until_end),
                _first(early, until_end),
                _last(late, until_begin),
                _first(early, until_begin),
            ]
        )
    return rows


def _first(early: list[int], t: int) -> int:
    """Return how many items can start until t: all before the first one that cannot."""
    return next((rank for rank, start in enumerate(early) if start > t), len(early))


def _last(late: list[int], t: int) -> int:
    """Return how many items surely start until t: all up to the last one that does."""
    return next((rank for rank in range(len(late), 0, -1) if late[rank - 1] <= t), 0)
