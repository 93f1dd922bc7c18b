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
    """One solver, and how much of the time it gets.

    Parameters
    ----------
    solver
        The solver; it starts from the incumbent.
    share
        The share of the remaining time that the solver gets, 0 to 1; at 0 it is left out.
    pace
        The most time that the solver gets, in seconds for each pair of operations of one device.
    flushes
        Whether the solver models flushes between iterations.
    share_where_loose
        The share in place of `share` if the schedule has turned out to be easy to improve.
    """

    solver: Solver
    share: float
    pace: float = inf
    flushes: bool = False
    share_where_loose: float | None = None

    def seconds(self, instance: Instance, left: float, *, loose: bool) -> float:
        """Return for how many seconds the solver may run.

        Parameters
        ----------
        instance
            The problem.
        left
            The seconds that are left for all solvers.
        loose
            Whether the schedule has turned out to be easy to improve.
        """
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
    """Raise the bound by shaving and by the fluid bound; the schedule stays as it is.

    The parameters are those of every solver, as `run_search` describes them.
    """

    def search(incumbent: Incumbent) -> str:
        upper = cost(incumbent.schedule)
        bound = fluid_bound(instance, upper, budget, incumbent.bound, progress)
        incumbent.prove(bound.value, bound.proof)
        return ""

    return run_search("fluid", instance, budget, start, bound, progress, search)


# The energetic bound, which comes before all steps, proves most of what can be proven at any size. A quick
# improvement then shortens the horizons, and CP-SAT closes the gap of easy instances. Where the quick
# improvement found much, a longer one follows. The fluid bound adds to the energetic one where B's take
# longer than F's; its pace keeps it short where CP-SAT refutes more. The second turn of CP-SAT only asks for
# targets, because its first turn has minimised. It returns at once from an instance that is too large for it,
# so that improvement gets the rest of the time there.
STEPS = (
    Step(improve, 0.1, pace=1e-4, flushes=True),
    Step(solve_cpsat, 0.2, pace=4.5e-3, share_where_loose=0.1),
    Step(improve, 0.0, pace=1e-3, flushes=True, share_where_loose=0.35),
    Step(prove, 0.25, pace=1.5e-4),
    Step(partial(solve_cpsat, minimise=False), 0.75),
    Step(improve, 1.0, flushes=True),
)
_LOOSE = 0.05  # a schedule is easy to improve if it has come this share of the first gap nearer to the bound


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
        The problem. A solver that does not model one of its rules is left out: CP-SAT models neither
        operations that overlap nor flushes between iterations, and the improvement models no overlap.
    budget
        The limits of the whole solve; each solver gets a part of the time.
    warm_start
        A valid schedule; None to start from one microbatch after another.
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
    """Run the steps, each from the incumbent, and return why the last one that ended early did so.

    A model that is too large for the time of its step is no reason, because the next step takes over.
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
