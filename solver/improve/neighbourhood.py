"""Large neighbourhood search: CP-SAT reorders the operations that some devices start in a time interval.

References
----------
P. Shaw, "Using constraint programming and local search methods to solve vehicle routing problems",
CP 1998; for job shops, D. Godard, P. Laborie and W. Nuijten, "Randomized large neighborhood search for
cumulative scheduling", ICAPS 2005.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.metrics import cost
from tightpipe.core.schedule import Schedule
from tightpipe.kernels.arrays import Ints

from ..cpsat.lattice.model import LatticeModel
from ..cpsat.race import SECONDS_OF_EFFORT, search
from ..engine.incumbent import Incumbent
from ..engine.worker import Worker
from ..outcome import FINISHED, Outcome, Worked
from ..queues import Queues, queues_of, starts_of
from ..start import in_queue_order
from ..windows.horizon_arrays import under_horizon
from ..windows.window_state_kernel import open_state
from ..windows.windows import Windows, settle
from .words import positions_of


class Neighbourhoods:
    """Improves the incumbent until the deadline; each step searches one neighbourhood.

    A neighbourhood consists of the operations that start in one interval of time on some adjacent devices.
    After a neighbourhood that CP-SAT could search in full, the next neighbourhood is larger; otherwise it is
    smaller.

    Parameters
    ----------
    instance
        The problem.
    incumbent
        Has the schedule to improve, and receives each cheaper one.
    worker
        The worker that runs this member.
    """

    def __init__(self, instance: Instance, incumbent: Incumbent, worker: Worker) -> None:
        self._queues, self._incumbent = queues_of(instance), incumbent
        self._random = np.random.default_rng(worker.budget.seed)
        self._params = worker.whole.params.neighbourhoods
        self._share, self._searched = self._params.first, 0

    def step(self, worker: Worker) -> Outcome:
        """Search a neighbourhood of the incumbent."""
        if worker.budget.left <= 0:
            return FINISHED
        params, known = self._params, self._incumbent
        schedule = in_queue_order(known.schedule)
        free = _choose(self._queues, schedule, self._share, params.narrow, self._random)
        windows = _windows(self._queues, schedule, free, worker.budget)
        if windows.feasible:
            self._searched += 1
            much_idle = worker.whole.params.cpsat.much_idle
            model = LatticeModel(self._queues, windows, known.bound, much_idle=much_idle)
            budget = worker.budget.reseeded(self._searched)
            found = search(model, budget, lambda *_: None, effort=params.effort)
            known.offer(found.schedule)
            self._share = min(1.0, self._share * (params.grow if found.exhausted else params.shrink))
            if found.ended.early:
                return found.ended
        return Worked(params.effort * SECONDS_OF_EFFORT)


def _choose(
    queues: Queues, schedule: Schedule, share: float, narrow: float, random: np.random.Generator
) -> NDArray[np.bool_]:
    """Choose a random neighbourhood, and return whether each item lies in it, shape (items,).

    The neighbourhood covers all devices for the given share of the schedule's time or, with the probability
    `narrow`, a random number of devices for a longer time. Near the begin and the end of the schedule it
    covers less. The items in it are called free.
    """
    start, devices = np.array(starts_of(queues, schedule)), queues.instance.devices
    wide = int(random.integers(1, devices, endpoint=True)) if random.random() < narrow else devices
    lowest = int(random.integers(0, devices - wide, endpoint=True))
    length = min(1.0, share * devices / wide) * (start.max() - start.min())
    begin = start.min() + (start.max() - start.min() + length) * random.random() - length
    device = np.repeat([queue.device for queue in queues.queues], [queue.count for queue in queues.queues])
    in_time = (begin <= start) & (start <= begin + length)
    free: NDArray[np.bool_] = in_time & (lowest <= device) & (device < lowest + wide)
    return free


def _windows(queues: Queues, schedule: Schedule, free: NDArray[np.bool_], budget: Budget) -> Windows:
    """Return windows for costs below that of the schedule, in which only free items change places."""
    horizon = cost(schedule) - 1
    arrays = under_horizon(queues.instance, horizon, budget.params.windows)
    windows = Windows(horizon, arrays, True, open_state(arrays, horizon))
    first = arrays.graph.first
    place = np.argsort(positions_of(queues, schedule.order).item)  # positions rise along each queue
    for q, queue in enumerate(queues.queues):
        mine = slice(first[q], first[q + 1])
        for other in queues.on(queue.device):
            if other != q:
                theirs = slice(first[other], first[other + 1])
                least, most = _ranks(place[mine], free[mine], place[theirs], free[theirs])
                k = arrays.graph.queues["local"][other]
                windows.before[mine, k] = np.maximum(windows.before[mine, k], least)
                windows.after[mine, k] = np.minimum(windows.after[mine, k], most)
    return replace(windows, feasible=bool(np.all(arrays.idle >= 0)) and settle(arrays, windows.state, budget))


def _ranks(
    place: Ints, free: NDArray[np.bool_], other_place: Ints, other_free: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Return the least and largest number of items of another queue that may precede each item of a queue.

    Two items may change places only if both are free.

    Parameters
    ----------
    place, free
        The position of each item of the queue in the word, and whether the item is free.
    other_place, other_free
        The same for the other queue.
    """
    now = np.searchsorted(other_place, place)
    if not other_free.any():
        return now, now
    first = int(np.argmax(other_free))
    last = first + int(other_free.sum())
    return np.where(free, np.minimum(now, first), now), np.where(free, np.maximum(now, last), now)
