"""Fold a schedule of many microbatches to one of fewer, and back: a repeating part counts once.

Between warm-up and cool-down good schedules repeat themselves: every device runs the same operations in the
same sequence, over and over, one period for each microbatch or for a few. Words with fewer periods are a
schedule of fewer microbatches, and what is found there for warm-up and cool-down, while some periods stay
as they are, holds with more periods as well. So the search takes as long as that for few microbatches. It
claims nothing: what it finds is unfolded, timed and validated as any schedule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tightpipe.core.errors import DeadlockError
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost, largest_work
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Order, Schedule
from tightpipe.kernels.arrays import Ints

from ..queues import Word, order_of, queues_of, words_of

_PERIODS = (1, 2, 3, 4)  # microbatches of each route
_KEPT = 5  # periods that the folded words keep; with one or two warm-up and cool-down have little room
_LARGEST = 0.8  # of the microbatches: what folds less is searched as it is


@dataclass(frozen=True, slots=True)
class Fold:
    """A schedule of fewer microbatches, and where its periods are.

    Parameters
    ----------
    schedule
        The folded one.
    whole
        The instance whose schedule was folded.
    first
        Position of the first kept period in each device's word, shape (p,).
    period
        Operations of a period on each device, shape (p,).
    times
        How many periods were taken out.
    """

    schedule: Schedule
    whole: Instance
    first: Ints
    period: Ints
    times: int

    @property
    def end(self) -> Ints:
        """Position behind the last kept period in each device's word, shape (p,)."""
        return self.first + _KEPT * self.period

    @property
    def saved(self) -> int:
        """Cost of the periods that were taken out, in ticks."""
        return largest_work(self.whole) - largest_work(self.schedule.instance)

    def unfold(self, order: Order) -> Schedule | None:
        """Return the whole schedule of a folded order whose kept periods are in their places.

        None if it comes to a deadlock: what surrounds the periods may not fit their repetition.
        """
        words = words_of(queues_of(self.schedule.instance), order)
        parts = zip(words, self.first.tolist(), self.period.tolist(), strict=True)
        return _timed(
            self.whole, (word[:i] + word[i : i + n] * self.times + word[i:] for word, i, n in parts)
        )


def fold(schedule: Schedule) -> Fold | None:
    """Fold a schedule as far as its repeating part allows; None where that changes little or its bubble.

    Parameters
    ----------
    schedule
        Its microbatches first-in-first-out, its backwards split.
    """
    whole = schedule.instance
    if whole.iterations > 1:
        return None
    words = words_of(queues_of(whole), schedule.order)
    for microbatches in _PERIODS:
        if whole.microbatches <= _KEPT * microbatches * len(whole.placement.routes):
            break
        first, period, found = _repeating(schedule, words, microbatches)
        times = found - _KEPT
        fewer = whole.microbatches - times * microbatches * len(whole.placement.routes)
        if times < 1 or fewer > _LARGEST * whole.microbatches:
            continue
        parts = zip(words, first.tolist(), (first + times * period).tolist(), strict=True)
        small = _timed(replace(whole, microbatches=fewer), (word[:i] + word[j:] for word, i, j in parts))
        if small is None:
            continue
        folded = Fold(small, whole, first, period, times)
        if cost(small) + folded.saved <= cost(schedule):
            return folded
    return None


def _timed(instance: Instance, words: Iterable[Word]) -> Schedule | None:
    try:
        return retime(instance, order_of(queues_of(instance), list(words)))
    except DeadlockError:
        return None


def _repeating(schedule: Schedule, words: list[Word], microbatches: int) -> tuple[Ints, Ints, int]:
    """Return where each word begins to repeat, the lengths of its periods, how many all devices have.

    The words are cut at one time, that from which all devices have most periods.
    """
    instance = schedule.instance
    every = instance.microbatches / (microbatches * len(instance.placement.routes))
    lengths = np.array([round(len(word) / every) for word in words])
    starts = [schedule.start[schedule.order.rows(d)] for d in range(instance.devices)]
    cuts = [np.searchsorted(start, starts[0]) for start in starts]
    periods = [_periods(np.array(word), every)[cut] for word, cut in zip(words, cuts, strict=True)]
    fewest = np.min(periods, axis=0)
    best = int(fewest.argmax())
    return np.array([cut[best] for cut in cuts]), lengths, int(fewest[best])


def _periods(word: Ints, every: float) -> Ints:
    """Return how many periods follow one another from each position of a word and from its end.

    Parameters
    ----------
    word
        Queues, shape (N,).
    every
        A period has this fraction of each queue's elements.

    Returns
    -------
    Ints
        Shape (N + 1,).
    """
    size, length = len(word), round(len(word) / every)
    found = np.zeros(size + 1, np.int64)
    differs = np.flatnonzero(word[length:] != word[: size - length])
    until = np.append(differs, size - length)
    begin = np.arange(size - length + 1)
    found[begin] = (until[np.searchsorted(until, begin)] - begin) // length + 1
    for queue in np.unique(word):
        before = np.cumsum(np.append(0, word == queue))
        found[begin] *= (before[length:] - before[: size - length + 1]) * every == before[-1]
    return found
