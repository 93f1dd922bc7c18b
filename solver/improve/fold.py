"""Fold a schedule of many microbatches to one of fewer microbatches, and unfold it again.

Between warm-up and cool-down good schedules repeat themselves: every device runs the same operations in the
same sequence, over and over. One such *period* comprises one microbatch of each route, or a few. To *fold* a
schedule is to take all but a few periods out of its words (`queues` defines words), which leaves a schedule
of fewer microbatches. A search then improves warm-up and cool-down of this small schedule quickly, and leaves
the kept periods as they are. The removed periods can usually be put back into a schedule that it finds, but
this is not guaranteed: the unfolded schedule is timed and validated like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tightpipe.base.errors import DeadlockError
from tightpipe.kernels.arrays import Ints
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost, largest_work
from tightpipe.model.schedule import Order, Schedule
from tightpipe.model.simulate import retime
from tightpipe.params.search import FoldParams
from tightpipe.params.solve_params import DEFAULTS

from ..queues import Word, order_of_words, queues_of, words_of


@dataclass(frozen=True, slots=True)
class Fold:
    """A folded schedule, and where its periods are."""

    schedule: Schedule  #: the schedule of fewer microbatches
    whole: Instance  #: the instance whose schedule was folded
    first: Ints  #: position of the first kept period in each device's word, shape (p,)
    period: Ints  #: number of operations of a period on each device, shape (p,)
    kept: int  #: number of periods that were kept
    times: int  #: number of periods that were taken out

    @property
    def end(self) -> Ints:
        """Position of the first operation after the kept periods in each device's word, shape (p,)."""
        return self.first + self.kept * self.period

    @property
    def saved(self) -> int:
        """Ticks by which taking out the periods makes the largest work of a device smaller."""
        return largest_work(self.whole) - largest_work(self.schedule.instance)

    def unfold(self, order: Order) -> Schedule | None:
        """Return the schedule of the whole instance that a folded order stands for.

        The kept periods have to be at the same positions as in `schedule`. The result is None if the unfolded
        order deadlocks, which happens where its warm-up or cool-down does not fit more periods.
        """
        words = words_of(queues_of(self.schedule.instance), order)
        parts = zip(words, self.first.tolist(), self.period.tolist(), strict=True)
        return _timed(
            self.whole, (word[:i] + word[i : i + n] * self.times + word[i:] for word, i, n in parts)
        )


def fold(schedule: Schedule, params: FoldParams = DEFAULTS.fold) -> Fold | None:
    """Fold a schedule: take out all but a few of its repeated periods; None if it does not fold.

    Its microbatches run first in, first out, and its backwards are split. It does not fold if no periods
    repeat, if those that repeat are too few to take out enough microbatches, if the folded schedule would
    deadlock or have a larger bubble, or if there are several iterations, microbatches that differ or copies.
    """
    whole = schedule.instance
    if whole.iterations > 1 or whole.differ or whole.offload is not None:
        return None
    words = words_of(queues_of(whole), schedule.order)
    for microbatches in params.periods:
        if whole.microbatches <= params.kept * microbatches * len(whole.placement.routes):
            break
        first, period, found = repeating(schedule, words, microbatches)
        times = found - params.kept
        fewer = whole.microbatches - times * microbatches * len(whole.placement.routes)
        if times < 1 or fewer > params.largest * whole.microbatches:
            continue
        parts = zip(words, first.tolist(), (first + times * period).tolist(), strict=True)
        small = _timed(replace(whole, microbatches=fewer), (word[:i] + word[j:] for word, i, j in parts))
        if small is None:
            continue
        folded = Fold(small, whole, first, period, params.kept, times)
        if cost(small) + folded.saved <= cost(schedule):
            return folded
    return None


def _timed(instance: Instance, words: Iterable[Word]) -> Schedule | None:
    try:
        return retime(instance, order_of_words(queues_of(instance), list(words)))
    except DeadlockError:
        return None


def repeating(schedule: Schedule, words: list[Word], microbatches: int) -> tuple[Ints, Ints, int]:
    """Find repeated periods that begin at about the same time of the schedule on all devices.

    On each device, the first period begins with the first operation that starts at or after one common time.
    This time is chosen so that the smallest number of periods on a device is as large as possible. A period
    has so many `microbatches` of each route. Return position of the first period in the word of each device,
    shape (p,), number of operations of a period on each device, shape (p,), and number of equal periods that
    follow one another from `first` on every device; 0 if there are none.
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
    """Return, for each position of a word, the number of equal periods that follow one another from there.

    The shape is (N + 1,) for a word of N queues. `every` periods hold all items, each an equal share of each
    queue; the number is 0 where no whole period begins.
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
