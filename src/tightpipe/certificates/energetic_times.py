"""Proof steps which show that a device would have to work longer between some times than they are apart."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction

from .check_proof import CheckError, RefutedError, Windows

Counts = list[list[int]]
Step = list[object]


def overload_step(windows: Windows, device: int) -> Step | None:
    """Return the step `overload` with the two times between which the excess of a device is largest.

    The excess is the work that the device must do between two times, less the ticks between them. Return None
    if no excess is above 0. If the windows and the memory limit leave no possible state of the device at some
    time, both times of the step are that time.
    """
    best, step = 0, None
    ahead: tuple[int, int, Counts] | None = None  # (most work by t) - t, where it is least, with t and counts
    for t in _times(windows, device):
        counts = counts_at(windows, device, t)
        try:
            least, most = _work(windows, device, t, counts)
        except RefutedError:  # no counts are possible at all
            return ["overload", device, t, counts, t, counts]
        if ahead is not None and least - t - ahead[0] > best:
            best, step = least - t - ahead[0], ["overload", device, ahead[1], ahead[2], t, counts]
        if ahead is None or most - t < ahead[0]:
            ahead = most - t, t, counts
    return step


def three_times_step(windows: Windows, device: int) -> Step | None:
    """Return the step `progress` about three times (theorem 4 of `docs/theorem.md`), or None.

    Before the first time no B can run, by the second all F's have ended, and by the third all B's have ended.
    Between the first two times all work counts. Between the last two only the work of B's counts, and only a
    share of it. The result is None if no share leads to a contradiction.
    """
    own = [windows.queues[q] for q in windows.on[device]]
    t1 = min(windows.early[queue.first] for queue in own if queue.kind == "B")
    t2, t3 = (_ended(windows, device, kind) for kind in "FB")
    times = sorted((t1, t2, t3))
    counts = [counts_at(windows, device, t) for t in times]
    for share in _shares(windows, device):
        weights = [
            [share.denominator] * len(own),
            [share.numerator if queue.kind == "B" else 0 for queue in own],
        ]
        with suppress(CheckError):
            try:
                windows.progress(device, times, counts, weights)
            except RefutedError:
                return ["progress", device, times, counts, weights]
    return None


def _work(windows: Windows, device: int, t: int, counts: Counts) -> tuple[int, int]:
    """Return the least and the most ticks that a device can have worked by tick `t`."""
    return (
        windows.least(device, t, counts, [1] * len(counts)),
        -windows.least(device, t, counts, [-1] * len(counts)),
    )


def _ended(windows: Windows, device: int, kind: str) -> int:
    """Return the tick by which all operations of the kind F, B or W have surely ended on a device."""
    own = [windows.queues[q] for q in windows.on[device]]
    return max(int(windows.late[queue.end - 1] + queue.time) for queue in own if queue.kind == kind)


def _shares(windows: Windows, device: int) -> list[Fraction]:
    """Return the shares s of a B's work that `three_times_step` tries.

    They are 1, and for each stage of the device at most one share between 0 and 1. The share of a stage makes
    two ratios equal: (1 - s) b + w over the memory that F takes, and w over the memory that W frees, where b
    and w are the ticks of B and W.
    """
    problem, shares = windows.problem, set[Fraction]()
    for _, s in problem.held[device]:
        (_, b, w), (_, b_frees, w_frees) = (
            [table[k][s] for k in "FBW"] for table in (problem.time, problem.delta)
        )
        if w_frees:
            shares.add(1 - Fraction(w * b_frees, b * w_frees))
    return sorted({Fraction(1), *(share for share in shares if 0 < share < 1)})


def _times(windows: Windows, device: int) -> list[int]:
    """Return, ascending, the times between which the excess of a device (`overload_step`) can be largest.

    For each operation, they are the last tick at which it cannot yet have begun, the last at which
    it cannot yet have ended, and the first ticks at which it surely has begun and surely has ended.
    """
    found = set()
    for queue in (windows.queues[q] for q in windows.on[device]):
        for i in range(queue.first, queue.end):
            early, late = windows.early[i], windows.late[i]
            found |= {early, early + queue.time - 1, late + 1, late + queue.time}
    return sorted(found)


def counts_at(windows: Windows, device: int, t: int) -> Counts:
    """Return the four counts of each queue of the device at tick `t`, as `Windows.least` takes them.

    The counts say how many operations of a queue have surely ended by `t`, can have ended by then, have
    surely begun before `t`, and can have begun by then. The limits for the start of one operation prove each
    count, although these limits need not ascend along a queue. A sure count comes from the last operation
    that surely starts early enough, a possible count from the first one that cannot start early enough.
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


def _first(early: Sequence[int], t: int) -> int:
    """Return how many operations of a queue can start by t: all before the first one that cannot."""
    return next((rank for rank, start in enumerate(early) if start > t), len(early))


def _last(late: Sequence[int], t: int) -> int:
    """Return how many operations of a queue surely start by t: all up to the last one that does."""
    return next((rank for rank in range(len(late), 0, -1) if late[rank - 1] <= t), 0)
