"""The checker's rules, applied such that each step that narrows the times of operations is written down.

The windows limit the starts and the orders of *items*: operations, numbered queue by queue, where a queue
holds alike operations of one device in sequence. The class `Windows` of `check_proof.py` defines all this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from .check_proof import FAR, CheckError, Problem, RefutedError, Windows

Step = list[Any]
_DEEP = 200  # most predecessors or followers of an item that are tried: more than in the compiled rules


class Derivation(Windows):
    """The checker's windows, with methods that apply rules and record each step that narrows something."""

    def __init__(self, problem: Problem, target: int, anchor: int) -> None:
        self.steps: list[Step] = []
        self.changed = False
        super().__init__(problem, target, anchor)

    def charge(self, work: int) -> None:
        """Count nothing, as a search is limited by its time and not by the work that a proof may take."""

    def narrow(self, lower: Any, upper: Any, at: int, least: int = -FAR, most: int = FAR) -> None:
        """Narrow lower[at] and upper[at] as the checker does, and set `changed` if either of them changes."""
        self.changed = self.changed or least > lower[at] or most < upper[at]
        super().narrow(lower, upper, at, least, most)

    def visit(self, i: int) -> None:
        """Apply every rule about item i once, and record each step that narrows something."""
        for step in self._candidates(i):
            self.try_step(step)

    def try_step(self, step: Step) -> bool:
        """Apply a step, record it if it narrows something, and return whether it does."""
        self.changed = False
        try:
            getattr(self, step[0])(*step[1:])
        except RefutedError:
            self.steps.append(step)
            raise
        if self.changed:
            self.steps.append(step)
        return self.changed

    def suppose_and(self, a: int, b: int, refute: Callable[[], None]) -> None:
        """Record a step `suppose`, which refutes that item a precedes item b, and enter that b precedes a."""
        outer, self.steps = self.steps, []
        mark, self.depth = len(self.trail), self.depth + 1
        with suppress(RefutedError):
            self.precede(a, b)
            refute()
        self.take_back(mark)
        self.depth -= 1
        outer.append(["suppose", a, b, self.steps])
        self.steps = outer
        self.precede(b, a)

    def _candidates(self, i: int) -> Iterator[Step]:
        """Yield the proof steps that may narrow the start or the orders of item i."""
        q = self.queue[i]
        on = self.on[self.queues[q].device]
        others = [r for r in on if r != q]
        yield from self._chains(i, others)
        for w in on:
            if len(self.sources[w]) > 1:
                yield from (["pool", i, w, r] for r in (w, *self.sources[w]) if r != q)
        if self.takes[q]:
            yield from (["memory", i, r] for r in others if self.queues[r].delta)
        for r in others:
            yield from self._by_time(i, r)
        yield from (["fill", i, r] for r in others)
        yield ["arrive", i]
        yield ["depart", i]
        yield from self._busy_until(i)
        yield from self._busy_from(i)
        yield ["frame", i]

    def _range(self, i: int, r: int) -> tuple[int, int]:
        at = self.width * i + self.local[r]
        return self.low[at], self.high[at]

    def _chains(self, i: int, others: list[int]) -> Iterator[Step]:
        for r in others:
            low, high = self._range(i, r)
            first = self.queues[r].first
            for s in self.on[self.queues[r].device]:
                if low > 0:
                    count = self._range(first + low - 1, s)[0]
                    if count > self._range(i, s)[0]:
                        yield ["chain", self.queues[s].first + count - 1, first + low - 1, i]
                if high < self.queues[r].count:
                    rank = self._range(first + high, s)[1]
                    if rank < self._range(i, s)[1]:
                        yield ["chain", i, first + high, self.queues[s].first + rank]

    def _by_time(self, i: int, r: int) -> Iterator[Step]:
        queue, end = self.queues[r], self.early[i] + self.queues[self.queue[i]].time
        low, high = self._range(i, r)
        count = low
        while count < high and end > self.late[queue.first + count]:
            count += 1
        if count > low:
            yield ["order", queue.first + count - 1, i]
        rank = high
        while rank > count and self.early[queue.first + rank - 1] + queue.time > self.late[i]:
            rank -= 1
        if rank < high:
            yield ["order", i, queue.first + rank]

    def _busy_until(self, i: int) -> Iterator[Step]:
        """Yield the step `preceded` with the predecessors that most raise item i's least start, if any do."""
        on = [self.queues[r] for r in self.on[self.queues[self.queue[i]].device]]
        ranks = [self._range(i, r)[0] for r in self.on[on[0].device]]
        left = sum(queue.time * rank for queue, rank in zip(on, ranks, strict=True))
        best, enough, bottom, work = None, self.early[i], FAR, 0
        for _ in range(_DEEP):
            starts = [(self.early[on[k].first + n - 1], k) for k, n in enumerate(ranks) if n]
            if not starts or min(bottom, max(starts)[0]) + work + left <= enough:
                break
            start, k = max(starts)
            ranks[k] -= 1
            bottom, work, left = min(bottom, start), work + on[k].time, left - on[k].time
            if bottom + work > enough:
                best, enough = list(ranks), bottom + work
        if best:
            yield ["preceded", i, best]

    def _busy_from(self, i: int) -> Iterator[Step]:
        """Yield the step `followed` with the followers that most lower item i's largest start, if any do."""
        on = [self.queues[r] for r in self.on[self.queues[self.queue[i]].device]]
        ranks = [self._range(i, r)[1] for r in self.on[on[0].device]]
        left = sum(queue.time * (queue.count - rank) for queue, rank in zip(on, ranks, strict=True))
        best, enough, top, work = None, self.late[i], -FAR, self.queues[self.queue[i]].time
        for _ in range(_DEEP):
            ends = [
                (self.late[on[k].first + n] + on[k].time, k) for k, n in enumerate(ranks) if n < on[k].count
            ]
            if not ends or max(top, min(ends)[0]) - work - left >= enough:
                break
            end, k = min(ends)
            ranks[k] += 1
            top, work, left = max(top, end), work + on[k].time, left - on[k].time
            if top - work < enough:
                best, enough = list(ranks), top - work
        if best:
            yield ["followed", i, best]


Counts = list[list[int]]


def overload_step(windows: Windows, device: int) -> Step | None:
    """Return the step `overload` with the two times between which the excess of a device is largest.

    The excess is the work that the device must do between two times, less the ticks between them. There is
    no step if no excess is above 0. If the windows and the memory limit leave no possible state of the device
    at some time, both times of the step are that time.
    """
    best, step = 0, None
    ahead: tuple[int, int, Counts] | None = None  # (most work by t) - t, where it is least, with t and counts
    for t in _times(windows, device):
        counts = counts_at(windows, device, t)
        try:
            least, most = (
                windows.least(device, t, counts, [1] * len(counts)),
                -windows.least(device, t, counts, [-1] * len(counts)),
            )
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
    if all(queue.kind != "B" for queue in own):
        return None
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


def room_step(windows: Windows, device: int) -> Step | None:
    """Return the step `room`, or None if what a device has to hold fits into its memory."""
    with suppress(CheckError):
        try:
            windows.room(device)
        except RefutedError:
            return ["room", device]
    return None


def _ended(windows: Windows, device: int, kind: str) -> int:
    """Return the tick by which all operations of the kind F, B or W have surely ended on a device."""
    own = [windows.queues[q] for q in windows.on[device]]
    return max(int(windows.late[queue.end - 1] + queue.time) for queue in own if queue.kind == kind)


def _shares(windows: Windows, device: int) -> list[Fraction]:
    """Return the shares s of a B's work that `three_times_step` tries.

    They are 1, and for each stage at most one between 0 and 1, which makes two ratios equal: (1 - s) b + w
    over the memory that F takes, and w over the memory that W frees, where b and w are the ticks of B and W.
    """
    shares = set[Fraction]()
    for k, s in windows.held[device]:
        _, time, delta, _ = windows.classes[k]
        b, w, b_frees, w_frees = (table[kind][s] for table in (time, delta) for kind in "BW")
        if b and w_frees:
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
