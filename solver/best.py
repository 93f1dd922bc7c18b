"""The method ``best``: bounds, CP-SAT and improvement under one time limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import comb, inf

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import was_stopped
from tightpipe.core.metrics import cost
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Result
from tightpipe.core.schedule import Schedule

from .bounds.searches.fluid import fluid_bound
from .cpsat import solve_cpsat
from .improve import improve
from .modelled import is_modelled
from .progress import Incumbent
from .run import TOO_LARGE, run_search

Solver = Callable[[Instance, Budget, Schedule | None, int | None, Progress], Result]


@dataclass(frozen=True, slots=True)
class Step:
    """One solver and when it is called.

    Parameters
    ----------
    solver
        Runs from the best that is known.
    share
        Of the time that is left, for this solver; 0 leaves it out.
    pace
        Seconds per pair of operations of one device after which it ends all the same.
    flushes
        Whether it models flushes between iterations.
    share_where_loose
        In place of `share` where the schedule has turned out to be easy to improve.
    """

    solver: Solver
    share: float
    pace: float = inf
    flushes: bool = False
    share_where_loose: float | None = None

    def seconds(self, instance: Instance, left: float, *, loose: bool) -> float:
        """Return how long the solver may take."""
        share = self.share if self.share_where_loose is None or not loose else self.share_where_loose
        if share == 0:
            return 0.0
        operations = 3 * instance.stages * instance.microbatches
        pairs = instance.devices * comb(operations // instance.devices, 2)
        return min(share * left, self.pace * pairs)


def prove(
    instance: Instance,
    budget: Budget,
    start: Schedule | None,
    bound: int | None,
    progress: Progress,
) -> Result:
    """Raise the bound by shaving and fluid progress; the schedule stays as it is."""

    def search(incumbent: Incumbent) -> str:
        upper = cost(incumbent.schedule)
        bound = fluid_bound(instance, upper, budget, incumbent.bound, progress)
        incumbent.prove(bound.value, bound.proof)
        return ""

    return run_search("fluid", instance, budget, start, bound, progress, search)


# a quick improvement shortens the horizons, and CP-SAT closes what is easy. Where the improvement found much,
# a longer one does. The energetic bound, which comes before all of them, proves most of what can be proven at
# any size; fluid progress adds to it where B's take longer than F's, for a short while where CP-SAT refutes
# more. CP-SAT's second turn only asks for targets, as its first has minimised; it hands large instances back,
# so that the rest goes to improvement there.
STEPS = (
    Step(improve, 0.1, pace=1e-4, flushes=True),
    Step(solve_cpsat, 0.2, pace=4.5e-3, share_where_loose=0.1),
    Step(improve, 0.0, pace=1e-3, flushes=True, share_where_loose=0.35),
    Step(prove, 0.25, pace=1.5e-4),
    Step(partial(solve_cpsat, minimise=False), 0.75),
    Step(improve, 1.0, flushes=True),
)
_LOOSE = 0.05  # of the first gap: a schedule that came nearer to its bound by more is easy to improve


def solve_best(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    progress: Progress = ignore,
) -> Result:
    """Find the cheapest schedule and the best bound that all solvers together reach.

    Parameters
    ----------
    instance
        The problem. What a solver does not model is left to those that do: CP-SAT neither overlaps
        operations nor flushes between iterations, the improvement does not overlap.
    budget
        For all of the work; each solver gets a part of its time.
    warm_start
        A valid schedule; without one, microbatch after microbatch is.
    progress
        Called with each new incumbent or bound.

    Raises
    ------
    InputError
        If the warm start is not a valid schedule of the instance.
    """
    take_turns = partial(_take_turns, instance, budget)
    return run_search("best", instance, budget, warm_start, None, progress, take_turns, energetic=True)


def _take_turns(instance: Instance, budget: Budget, incumbent: Incumbent) -> str:
    """Run the steps, each from the best that is known; return why one of them fell short.

    That a model is too large for its step's time is no reason: the next step takes over.
    """
    reason = ""
    first = cost(incumbent.schedule)
    least = first - _LOOSE * (first - incumbent.bound)
    for step in STEPS:
        seconds = step.seconds(instance, budget.left, loose=cost(incumbent.schedule) < least)
        if incumbent.closed or seconds <= 0 or not is_modelled(instance, flushes=step.flushes):
            continue
        part = budget.within(seconds)
        result = step.solver(instance, part, incumbent.schedule, incumbent.bound, incumbent.follow)
        if result.reason != TOO_LARGE:
            reason = result.reason or reason
        incumbent.offer(result.schedule)
        incumbent.prove(result.bound, result.proof)
        if was_stopped(reason):
            break
    return reason
