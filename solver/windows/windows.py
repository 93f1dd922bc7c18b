"""Windows: the start times and orders that the items can have in a schedule of at most a given cost.

`queues` defines queues, items and ranks. A cost T is supposed; it is called the *horizon*. The *window* of an
item consists of the least and the largest start that the item can have in a schedule of cost at most T. The
window also says, for each other queue of the device, how many items of that queue surely precede the item,
and from which rank on they surely follow it. The order of two items of one device is *open* if the windows do
not decide which of them runs first. Windows hold if every schedule of cost at most T lies in them; they need
not be as narrow as possible.

A *frame* is an interval of length T in which all operations of a device lie. For `device_span` every device
has a frame of its own; for `makespan` all devices share one. Times count from the start of the frame of the
*anchor*, which is the device where route 0 begins. The frames of the other devices float: their starts have
windows, too.

Windows follow from a horizon by propagation, and are narrowed further by shaving (`propagate_kernel`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph_arrays import GraphArrays, beside
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.proof import WindowParams
from tightpipe.params.solve_params import DEFAULTS

from ..outcome import Threads
from ..queues import Queues
from .agenda_kernel import clear, push_all
from .propagate_kernel import shave
from .window_state_kernel import LENGTH, HorizonArrays, WindowState, copy_of, meet, open_state, under_horizon

_USUAL = 16  # queues on a device; where microbatches are of many classes, there are more


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of all items under one horizon."""

    horizon: int  #: the supposed cost T, in ticks
    arrays: HorizonArrays  #: the queues of the instance
    feasible: bool  #: False if it is proven that no schedule costs at most T. The state means nothing then
    state: WindowState  #: the windows as arrays that the compiled rules narrow

    @property
    def earliest(self) -> Ints:
        """Least start of each item in ticks, shape (items,)."""
        return self.state.earliest

    @property
    def latest(self) -> Ints:
        """Largest start of each item in ticks, shape (items,)."""
        return self.state.latest

    @property
    def floating(self) -> bool:
        """Whether every device has a frame of its own."""
        return self.arrays.anchor >= 0

    @property
    def frames(self) -> tuple[Ints, Ints]:
        """Least and largest start of each device's frame in ticks, shape (devices,) each."""
        return self.state.frame_earliest, self.state.frame_latest

    def from_frame(self) -> tuple[Ints, Ints]:
        """Return the least and the most ticks from the start of its device's frame to each item's start."""
        device = self.arrays.graph.items["home"]
        early, late = (frame[device] for frame in self.frames)
        least, most = self.work_before()
        idle = self.arrays.idle[device]
        return np.maximum(self.earliest - late, least), np.minimum(self.latest - early, most + idle)

    def work_before(self) -> tuple[Ints, Ints]:
        """Return the least and the most ticks that the device works before each item, shape (items,) each."""
        graph = self.arrays.graph
        on_device, ticks = beside(graph), graph.queues["duration"]
        duration = np.where(on_device >= 0, ticks[on_device], 0)
        own = ticks[graph.queue]
        return (self.before * duration).sum(axis=1), (self.after * duration).sum(axis=1) - own

    def origin(self, start: Sequence[int]) -> int:
        """Return the tick at which the frame of the anchor, or of all devices, starts, given the starts."""
        if not self.floating:
            return min(start)
        on_anchor = self.arrays.graph.items["home"] == self.arrays.anchor
        return int(np.asarray(start)[on_anchor].min())

    @property
    def before(self) -> Ints:
        """For each item and each queue of its device, how many items of the queue surely precede the item.

        These items precede it in every schedule of cost at most the horizon; further items may precede it in
        some schedules. The shape is (items, queues of a device); column k stands for the k-th queue of the
        item's device.
        """
        return self.state.before

    @property
    def after(self) -> Ints:
        """For each item and each queue of its device, the rank from which on all surely follow the item.

        The shape and the columns are those of `before`.
        """
        return self.state.after

    @property
    def undecided(self) -> int:
        """Number of pairs of items whose order the windows leave open."""
        return int((self.after - self.before).sum() - len(self.arrays.graph.queue)) // 2


def windows_of(
    queues: Queues, horizon: int, budget: Budget = UNLIMITED, wider: Windows | None = None
) -> Windows:
    """Return the windows that the rules of the model give under a horizon.

    If the time of the budget is up the windows hold, too; they are only wider than they could be. `wider` are
    feasible windows of the same queues under a horizon that is no shorter, which saves most of the work. A
    frame lies in the longer frame that starts at the same time, so what holds there holds here.
    """
    assert queues.instance.offload is None, "windows know no copies; ask about `without_copies`"
    arrays = under_horizon(queues.instance, horizon, budget.params.windows)
    state = open_state(arrays, horizon)
    if wider is not None:
        meet(state, wider.state)
    feasible = bool(np.all(arrays.idle >= 0)) and settle(arrays, state, budget)
    return Windows(horizon, arrays, feasible, state)


def windows_of_edges(queues: Queues, horizon: int) -> Windows:
    """Return the windows that follow from the edges of the graph alone, whatever ticks operations take.

    They also hold where the items of a joint operation run at other times than `with_cut_times` supposes.
    """
    arrays = under_horizon(queues.instance, horizon, pooled=queues.pooled)
    untimed = arrays.graph.queues.copy()
    untimed["duration"] = 0
    idle = np.full_like(arrays.idle, horizon)
    arrays = arrays._replace(graph=arrays.graph._replace(queues=untimed), idle=idle)
    return Windows(horizon, arrays, True, open_state(arrays, horizon))


def settle(arrays: HorizonArrays, state: WindowState, budget: Budget = UNLIMITED) -> bool:
    """Apply all rules until nothing follows or time is up; return False if the windows hold no schedule."""
    push_all(state)
    params, square = budget.params.windows, len(state.low) ** 2  # the rules look at pairs of queues
    steps = max(1, params.slice * _USUAL**2 // max(_USUAL**2, square))
    while state.counter[LENGTH] > 0 and budget.left > 0:
        if not apply_rules(arrays, state, steps):
            return False
    clear(state)
    return True


_NO_ITEMS, _NO_MARKS = np.zeros(0, np.int64), np.zeros(0, np.bool_)


def apply_rules(arrays: HorizonArrays, state: WindowState, steps: int) -> bool:
    """Apply the rules to at most `steps` items of the agenda; return False on a contradiction."""
    return shave(arrays, state, _NO_ITEMS, steps, _NO_MARKS, _NO_MARKS)


def are_crowded(graph: GraphArrays, params: WindowParams) -> bool:
    """Return whether devices have so many queues that proofs by windows take longer than they are worth.

    Devices have many where microbatches are of many classes. The time of the rules grows with the square of
    the number of queues, and that of a sweep of shaving with its cube, while few orders are decided: with 32
    different microbatches on 8 devices no search raises the bound by formula.
    """
    return int(graph.devices["queues"].max()) > params.most_queues


class OpenOrders:
    """The items, the pairs of queues and the open orders, as lists for the loops that build a model.

    - `windows`: the windows, which hold the orders that are decided already.
    - `queues`: the queues of the problem, as a tuple.
    - `first`: the first item of each queue, and at the end the number of all items.
    - `on`: for each device, the indices of its queues.
    """

    def __init__(self, queues: Queues, windows: Windows) -> None:
        self.queues, self.windows = queues.queues, windows
        self.first: list[int] = windows.arrays.graph.first.tolist()
        self.on = [queues.on(d) for d in range(queues.instance.devices)]
        self._local: list[int] = windows.arrays.graph.queues["local"].tolist()
        self._before: list[list[int]] = windows.before.tolist()
        self._after: list[list[int]] = windows.after.tolist()

    def items(self, q: int) -> range:
        """Return the items of queue q, in sequence."""
        return range(self.first[q], self.first[q + 1])

    def pairs(self) -> list[tuple[int, int]]:
        """Return every pair (x, y) of queues of one device with x < y."""
        return [(x, y) for on in self.on for x in on for y in on if x < y]

    def open_ranks(self, i: int, y: int) -> range:
        """Return the ranks in y, another queue of i's device, of items whose order with item i is open."""
        k = self._local[y]
        return range(self._before[i][k], self._after[i][k])


class Shaver:
    """Narrows windows in place by shaving, in sweeps over the items; later sweeps may be more thorough.

    Each thread shaves a copy of the windows for a while. Then the copies are intersected, which is correct
    because the windows of each copy hold. In the next sweep, the propagation of one supposition may work on
    `steps` items. An item is `exhausted` if no supposition about it is refuted even by unlimited propagation:
    more steps say nothing new until a window changes, so sweeps pass it over.
    """

    def __init__(self, windows: Windows, threads: int = 1, params: WindowParams = DEFAULTS.windows) -> None:
        self.windows, self.threads, self.params = windows, threads, params
        self.feasible = windows.feasible
        self.steps = params.first_steps
        self._fruitful = np.ones(len(windows.arrays.graph.queue), np.bool_)
        self.exhausted = ~self._fruitful
        self._states = [windows.state, *(copy_of(windows.state) for _ in range(threads - 1))]

    def run(self, budget: Budget, thorough: int | None = None) -> bool | None:
        """Shave until the windows are contradictory, sweeps decide little, or time is up.

        No further sweep begins when all items are exhausted, or when a sweep that is as thorough as allowed
        has decided few orders. Return True if the windows are contradictory, None if time is up, False
        otherwise. `thorough` is the most items that the propagation of one supposition may work on; None for
        the parameter `last_steps`. The deadline is looked at after so many items of each thread (`chunk`).
        """
        most = self.params.last_steps if thorough is None else thorough
        while self.feasible and self.steps <= most and not self.exhausted.all():
            open_before = self.windows.undecided
            if not self.sweep(budget):
                return None if self.feasible else True
            decided = open_before - self.windows.undecided
            if decided <= self.params.little * open_before:
                self.steps *= 2
                self._fruitful[:] = True
        return not self.feasible

    def sweep(self, budget: Budget) -> bool:
        """Shave every promising item once.

        An item is promising unless a sweep of the same thoroughness has decided none of its orders. Return
        True if the sweep came to its end and the windows may hold a schedule.
        """
        with Threads(self.threads) as pool:
            for parts in self._parts():
                if budget.left <= 0:
                    return False
                jobs = [
                    pool.submit(
                        shave, self.windows.arrays, state, part, self.steps, self._fruitful, self.exhausted
                    )
                    for state, part in zip(self._states, parts, strict=True)
                ]
                stand = [job.result() for job in jobs]
                if not all(stand) or not self._meet(budget):
                    self.feasible = False
                    return False
                if any(self._fruitful[part].any() for part in parts):
                    self.exhausted[:] = False
        return True

    def _parts(self) -> Iterator[list[Ints]]:
        """Yield lists of arrays of items, one array for each thread, that together hold the promising items.

        Late items come first, because windows are tightest in the cool-down.
        """
        order = np.argsort(-self.windows.earliest, kind="stable")
        order = order[self._fruitful[order]]
        size = self.params.chunk * self.threads
        for begin in range(0, len(order), size):
            chunk = order[begin : begin + size]
            # The loops are compiled for contiguous arrays only; an array with strides has another type.
            yield [np.ascontiguousarray(chunk[t :: self.threads]) for t in range(self.threads)]

    def _meet(self, budget: Budget) -> bool:
        """Set every copy to the intersection of all, after propagation; return False on a contradiction."""
        if self.threads == 1:
            return True
        first, *others = self._states
        for state in others:
            meet(first, state)
        if not settle(self.windows.arrays, first, budget):
            return False
        for state in others:
            state.value[:] = first.value
        return True


def shaved_windows(
    queues: Queues, horizon: int, budget: Budget, thorough: int | None = None, wider: Windows | None = None
) -> Windows:
    """Return the windows under a horizon after propagation and shaving, which crowded devices are spared.

    The parameters are those of `windows_of`, and `thorough` as in `Shaver.run`; None for the parameter
    `windows.thorough`.
    """
    windows, params = windows_of(queues, horizon, budget, wider), budget.params.windows
    if are_crowded(windows.arrays.graph, params):
        return windows
    shaver = Shaver(windows, budget.threads, params)
    shaver.run(budget, params.thorough if thorough is None else thorough)
    return replace(windows, feasible=shaver.feasible)
