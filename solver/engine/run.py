"""What methods that search have in common: an incumbent, first bounds, and a result even after a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import RLock
from time import perf_counter

import numpy as np

from tightpipe.base.errors import InputError
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound, LogEntry, Progress, Proof, Result, Status, refuse_contradiction
from tightpipe.model.schedule import Order, Schedule
from tightpipe.model.simulate import retime
from tightpipe.model.validate import validate
from tightpipe.params.budget import Budget

from ..bounds.formulas import best_bound
from ..bounds.relaxed import split_backwards, without_copies
from ..copies import copied_in
from ..outcome import FAILURES, FINISHED, End, Ended, Outcome, failed, stopped_by
from ..queues import order_of_tokens, queues_of, tokens_of
from ..windows import are_crowded
from .portfolio import Begin, Worker, alone, in_sequence


class Incumbent:
    """The *incumbent*: the cheapest valid schedule and the largest bound so far, with a log of improvements.

    Several threads may offer schedules and prove bounds at the same time.

    `first` is the schedule with which the work began. It may repeat itself where a cheaper one does not.
    The `bound` has a `proof` and, where several bounds have the same kind, a `name`. The times in the
    log count from `begun`, in seconds of `time.perf_counter`. `tell` is called with each new log entry.
    """

    def __init__(
        self,
        schedule: Schedule,
        bound: int,
        proof: Proof | None,
        begun: float,
        tell: Progress,
        name: str = "",
    ) -> None:
        self.schedule = self.first = schedule
        self.bound, self.proof, self._name = bound, proof, name
        self.log: list[LogEntry] = []
        self._begun, self._tell = begun, tell
        self._cost = cost(schedule)
        self._lock = RLock()
        self._write()

    @property
    def elapsed(self) -> float:
        """Seconds since the work began."""
        return perf_counter() - self._begun

    @property
    def cost(self) -> int:
        """The cost of the schedule in ticks."""
        return cost(self.schedule)

    @property
    def closed(self) -> bool:
        """Whether the bound equals the cost of the schedule, so that the schedule is proven optimal.

        Raise a ContradictionError if the bound is above the cost of the schedule.
        """
        refuse_contradiction(self.schedule, self.bound, self.proof, self._name)
        return self.bound == self.cost

    def result(self, method: str, ended: Ended) -> Result:
        """Return the result of a method that has ended like this.

        The result leaves the reason out if the schedule is proven optimal, unless the reason is a signal,
        which asks the caller to stop as well.
        """
        return Result(
            self.schedule.instance,
            method,
            Status.OPTIMAL if self.closed else Status.FEASIBLE,
            self.schedule,
            self.bound,
            self.elapsed,
            tuple(self.log),
            "" if self.closed and not ended.stopped else ended.text,
            self.proof,
        )

    def offer(self, schedule: Schedule | None) -> None:
        """Keep the schedule if there is one and it is cheaper than the incumbent's; raise as `validated`."""
        if schedule is None or cost(schedule) >= self.cost:
            return
        validated(schedule)
        with self._lock:
            if cost(schedule) < self.cost:
                self.schedule = schedule
                self.report_cost(cost(schedule))

    def report_cost(self, new_cost: int | None) -> None:
        """Log a cost in ticks unless it is None or no new least one; its schedule will be offered later."""
        with self._lock:
            if new_cost is not None and new_cost < self._cost:
                self._cost = new_cost
                self._write()

    def prove(self, bound: int | None, proof: Proof | None) -> None:
        """Keep and log a proven bound, in ticks, if it is larger than the bound so far.

        A search that only looks at costs up to a horizon proves nothing beyond the horizon plus one tick, and
        caps its bound at that value before it calls this method. A bound that contradicts the schedule is
        not noticed here but by `closed`, because `closed` runs in the thread that solves, whereas this
        method may run in a thread of the backend.
        """
        with self._lock:
            if bound is not None and bound > self.bound:
                self.bound, self.proof, self._name = bound, proof, ""
                self._write()

    def update(self, entry: LogEntry) -> None:
        """Log the cost, and keep and log the bound, in the log entry of another solver.

        Each of the two is ignored unless it is better than the best so far. The other solver has
        started from this incumbent. Its schedule is offered when it ends.
        """
        self.report_cost(entry.cost)
        self.prove(entry.bound, entry.proof)

    def _write(self) -> None:
        entry = LogEntry(self.elapsed, self._cost, self.bound, self.proof)
        self.log.append(entry)
        self._tell(entry)


def validated(schedule: Schedule) -> Schedule:
    """Return a schedule that the validator accepts; raise an AssertionError if it does not."""
    if violations := validate(schedule.instance, schedule):
        raise AssertionError(f"the search found an invalid schedule, please report: {violations[0]}")
    return schedule


def one_by_one(instance: Instance) -> Order:
    """Return the order that runs one microbatch after another, each W right after its B.

    At each stage, a microbatch runs the F's of all its slices before the next stage, and likewise back. Where
    memory is too small for that, what may leave does so at once, and comes back right before its backward.
    This order is valid whenever the instance has a valid order.
    """
    stages, k, n = instance.stages, instance.slice_count, instance.microbatches
    up, down = (OpKind.F, OpKind.O), (OpKind.L, OpKind.B, OpKind.W)
    kind = np.concatenate([np.tile(up, stages * k), np.tile(down, stages * k)])
    first, last = np.divmod(np.arange(stages * k), k), np.divmod(np.arange(stages * k)[::-1], k)
    stage, slices = (
        np.concatenate([np.repeat(a, len(up)), np.repeat(b, len(down))])
        for a, b in zip(first, last, strict=True)
    )
    unit = np.repeat(np.arange(n) * k, len(kind)) + np.tile(slices, n)
    each = np.stack([np.tile(kind, n), np.tile(stage, n), unit], axis=1)
    graph, is_copy = arrays_of(instance), each[:, 0] > OpKind.BW
    node = graph.node[np.where(is_copy, OpKind.F, each[:, 0]), graph.mb_class[unit], each[:, 1]]
    copied = instance.offload is not None and replace(instance, offload=None).infeasibility() is not None
    leaves = np.array([copied and instance.offloads(s) for s in range(stages)])
    there = np.where(is_copy, leaves[each[:, 1]], node >= 0)
    each, device = each[there], graph.nodes["device"][node[there]]
    by_device = np.argsort(device, kind="stable")
    return Order(each[by_device], np.searchsorted(device[by_device], np.arange(instance.devices + 1)))


def in_queue_order(schedule: Schedule) -> Schedule:
    """Return a schedule that costs no more than `schedule`, with first-in-first-out queues.

    The docstring of the module `queues` proves that relabelled microbatches cost no more. Fused backwards are
    split where that costs nothing. `retime` then gives the order its best start times. Only a schedule whose
    copies fit no microbatches in this sequence is returned as it is.
    """
    instance, queues = schedule.instance, queues_of(schedule.instance)
    copied = copied_in(instance, schedule.order)
    if copied is None:
        return schedule
    return retime(instance, order_of_tokens(queues, tokens_of(queues, schedule.order), copied))


def checked_start(instance: Instance, warm_start: Schedule | None) -> Schedule:
    """Return a valid schedule to start from: the warm start, or else one microbatch after another.

    The times of a warm start are kept if no better ones are found for its order. Raise an InputError if the
    warm start is not a valid schedule of the instance.
    """
    if warm_start is None:
        return retime(instance, one_by_one(instance))
    violations = validate(instance, warm_start)
    if violations:
        raise InputError(f"the warm start is not a valid schedule: {violations[0]}")
    return in_best_times(instance, warm_start)


def in_best_times(instance: Instance, schedule: Schedule) -> Schedule:
    """Return the order of a schedule, perhaps of another objective's, in the best times known here."""
    own = Schedule(instance, schedule.order, schedule.start, schedule.end)
    return min(own, retime(instance, schedule.order), key=cost)


def run(
    method: str,
    instance: Instance,
    budget: Budget,
    start: Schedule | None,
    progress: Progress,
    work: Callable[[Incumbent], Ended],
    *,
    opening: Search | None = None,
) -> Result:
    """Work on an incumbent from a start until the gap is closed, time is up, or a signal ends the work.

    If the instance has no schedule at all, the result says so, and no work is done. Raise an InputError if
    the start is not a valid schedule of the instance.

    - `start`: a valid schedule; None to start from one microbatch after another.
    - `work`: runs the members of the method on the incumbent, and returns how they ended.
    - `opening`: a search for a bound that runs before that, for a share of the time.
    """
    begun = perf_counter()
    reason = instance.infeasibility()
    if reason is not None:
        return Result(instance, method, Status.INFEASIBLE, None, None, perf_counter() - begun, reason=reason)
    incumbent = _first_incumbent(checked_start(instance, start), begun, progress)
    ended = FINISHED
    try:
        if opening is not None:
            share = budget.params.best.energetic
            ended = alone(budget, incumbent, in_sequence(*bounding(opening, incumbent, share)))
        if not (ended.early or incumbent.closed) and budget.left > 0:
            ended = work(incumbent)
    except KeyboardInterrupt as stop:
        ended = stopped_by(stop)
    except FAILURES as error:
        ended = failed(error)
    return incumbent.result(method, ended)


def unsearched(
    method: str, instance: Instance, start: Schedule | None, ended: Ended, progress: Progress
) -> Result:
    """Return the result of a solve that ended before its search; `start` is a validated schedule or None."""
    first = checked_start(instance, None) if start is None else start
    return _first_incumbent(first, perf_counter(), progress).result(method, ended)


def _first_incumbent(first: Schedule, begun: float, progress: Progress) -> Incumbent:
    """Return the incumbent with which a search begins, with the best bound by formula."""
    formula = best_bound(first.instance)
    return Incumbent(validated(first), formula.value, formula.proof, begun, progress, formula.name)


Search = Callable[[Instance, int, Budget, int, Progress], Bound]
"""A search for a lower bound.

It takes an instance that has a schedule, the cost of a known schedule in ticks, the limits of the search, the
best bound so far in ticks, and a function to call with each better bound. It returns the best bound that it
proves. The targets that it supposes lie between the two costs.
"""


class BoundSearch:
    """Raises the bound of an incumbent by one search to its end, in a single step.

    - `search`: proves of one cost after another that no schedule has this cost or a lower one.
    - `about`: the instance that is searched: that of the incumbent, or one whose bounds hold for it.
    - `share`: the share of the time left, 0 to 1, that the search may take when it begins.
    - `tell`: called with the best bound that the search has proven.
    """

    def __init__(
        self,
        search: Search,
        incumbent: Incumbent,
        about: Instance,
        share: float = 1.0,
        *,
        tell: Callable[[Bound], object] = lambda _: None,
    ) -> None:
        self._search, self._incumbent, self._about = search, incumbent, about
        self._share, self._tell = share, tell

    def step(self, worker: Worker) -> Outcome:
        """Run the search, which ends this member."""
        known, about = self._incumbent, self._about
        if are_crowded(arrays_of(about), worker.whole.params.windows):
            return Ended(End.UNSUITED)
        budget = worker.budget.shortened(self._share * worker.left)
        bound = self._search(about, known.cost, budget, known.bound, known.update)
        known.prove(bound.value, bound.proof)
        self._tell(bound)
        return FINISHED


def bounding(
    search: Search,
    incumbent: Incumbent,
    share: float = 1.0,
    *,
    cut: bool = True,
    tell: Callable[[Bound], object] = lambda _: None,
) -> list[Begin]:
    """Return what begins a search for a bound. It is asked about the instance without copies.

    Windows cut fused backwards such that the B's are as long as they can be (`windows`). With `cut`, the
    search is also asked about the instance in which the W's are. The other parameters are those of
    `BoundSearch`; `share` is that of both searches together.
    """
    about = without_copies(incumbent.schedule.instance)
    asked = (about, *split_backwards(about)[1:]) if cut else (about,)

    def begin(one: Instance, _: Worker) -> BoundSearch:
        return BoundSearch(search, incumbent, one, share / len(asked), tell=tell)

    return [partial(begin, one) for one in asked]
