"""A planner that is made once, and orders the microbatches of each training step within a second."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import Any

from ..base.errors import InputError, plain
from ..base.interruption import reason_of
from ..kernels.compiled import ensure_compiled
from ..model.instance import Instance
from ..model.law import CostLaw, microbatches_of
from ..model.result import Result, Status
from ..params.budget import Allowance
from ..params.solve_params import DEFAULTS, SolveParams
from ..registry.methods import find_method, loops_of_search
from ..registry.solve import solve
from .replicas import Assignment, AssignmentSearch

_QUICK = "list:short-at-ends"  # in the sequence that is mostly the best one
_PAYS = 1.5  # a search begins if there is this many times as long left as the list schedule took
_CHECKS = 0.25  # and leaves so much of that for the check of its last schedule
_STARTS = 0.1  # share of the time for the heuristics with which a search begins
_ALL = 30  # with this many times as long left, it begins with all heuristics in all sequences


class StepPlanner:
    """Orders the microbatches of one training step after another, for a trainer that calls it each step.

    What is slow is done once, when the planner is made: solvers are imported, loops are compiled, and loaded
    by a solve of a small batch. A step then takes as long as it is given. The first answer is a list
    schedule, which takes a tenth to a fifth of a second for 64 different microbatches on 16 devices; the
    method improves it for the rest of the time.

    Parameters
    ----------
    law
        The costs of all stages as functions of the lengths, with placement, memory limit and objective.
    method
        The method that searches: one of `tightpipe.methods()`. If it is a heuristic, its order is the answer.
    workers
        Number of threads.
    seed
        Seed of every random choice.
    params
        The numbers that tune the searches.

    Raises
    ------
    InputError
        If the method is unknown or does not fit the placement.

    Examples
    --------
    >>> from tightpipe import CostLaw, Law, Placement, StepPlanner
    >>> times = (Law(fixed=5, tokens=0.1),) * 2
    >>> planner = StepPlanner(CostLaw(Placement("linear", 2), times, times, times))
    >>> result = planner.order([512, 80, 1024], time_limit=0.1)
    >>> result.schedule.order.devices
    2
    """

    def __init__(
        self,
        law: CostLaw,
        *,
        method: str = "best",
        workers: int = 1,
        seed: int = 0,
        params: SolveParams = DEFAULTS,
    ) -> None:
        self.law = law
        found = find_method(method)
        self._method, self._quick = found.name, found.name if found.kind == "heuristic" else _QUICK
        # heuristics may take little of a step's time, and none of them more than the step has
        params = replace(params, starts=replace(params.starts, least=0.0, share=_STARTS))
        self._options: dict[str, Any] = {"workers": workers, "seed": seed, "params": params}
        Allowance(**self._options)  # refuses what is out of range
        small = _small_batch(law)
        ensure_compiled((*found.loops, *loops_of_search(found.loops, small)))  # lengths may differ or not
        for name in (self._method, self._quick):
            self._solve(small, name, 0.0)

    def order(self, microbatches: Sequence[Any], *, time_limit: float = 1.0) -> Result:
        """Return an order for the microbatches of a step, with its cost and a bound.

        Parameters
        ----------
        microbatches
            For each microbatch its length, or the lengths of the sequences that it packs. Microbatch i of the
            result is `microbatches[i]`.
        time_limit
            Seconds for all of it. If they do not suffice for a search, the result is a list schedule.

        Returns
        -------
        Result
            The cheapest schedule found: `result.schedule.order` has the sequence of every device. Once there
            is a list schedule, Ctrl-C ends the search with the best schedule so far.

        Raises
        ------
        InputError
            If a length is below 1, or a law gives no time for it; the message names it.
        """
        return self.solve_within(self.law.instance(microbatches), _limit_from_now(time_limit))

    def assign(self, microbatches: Sequence[Any], replicas: int, *, time_limit: float = 1.0) -> Assignment:
        """Divide the microbatches of a step among data-parallel replicas, and order them in each.

        Parameters
        ----------
        microbatches
            For each microbatch of all replicas its length, or the lengths that it packs.
        replicas
            Number of replicas, each of which gets a microbatch at least.
        time_limit
            Seconds for all of it. The first assignment takes a list schedule for each replica in any case.

        Raises
        ------
        InputError
            If there are more replicas than microbatches, or as in `order`.
        NoScheduleError
            If a replica of the first assignment has no schedule, for example for want of memory.
        """
        batch = microbatches_of(microbatches)
        return AssignmentSearch(self, batch, replicas, _limit_from_now(time_limit)).run()

    def solve_within(self, instance: Instance, deadline: float) -> Result:
        """Return the best schedule of an instance that is found before a time of `perf_counter`."""
        begin = perf_counter()
        first = self.quick(instance)
        took = perf_counter() - begin
        left = deadline - perf_counter()
        if first.status is not Status.FEASIBLE or left < _PAYS * took or self._method == self._quick:
            return replace(first, seconds=took)
        limit = left - _CHECKS * took
        try:
            more = ("best",) if left > _ALL * took else ()
            found = self._solve(instance, self._method, limit, warm_start=(first.schedule, *more))
        except KeyboardInterrupt as stop:  # the search has not begun
            found = replace(first, reason=reason_of(stop))
        return replace(found, seconds=perf_counter() - begin)

    def quick(self, instance: Instance) -> Result:
        """Return the list schedule of an instance, or that of a heuristic that was asked for."""
        return self._solve(instance, self._quick, 0.0)

    def _solve(self, instance: Instance, method: str, time_limit: float, **options: Any) -> Result:
        return solve(instance, method, time_limit=time_limit, **self._options, **options)


def _small_batch(law: CostLaw) -> Instance:
    """Return the instance of a few microbatches, of lengths for which the law has times."""
    for power in range(8):  # a law may begin to be positive at some length
        with suppress(InputError):
            return law.instance([10**power, 2 * 10**power] * len(law.placement.routes))
    return law.instance([10_000, 20_000] * len(law.placement.routes))  # raises the error


def _limit_from_now(time_limit: float) -> float:
    time_limit = plain(time_limit)
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not 0 <= time_limit < 1e8:
        raise InputError("must be a number of seconds, at least 0", key="time_limit", value=time_limit)
    return perf_counter() + time_limit
