"""Schedules that are good under noise: `solve_robust` minimises a measure of the cost in random samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from tightpipe.solver.modelled import Rule, refuse_unmodelled
from tightpipe.solver.robust import Measure, robust_search

from ..core.allowance import Allowance
from ..core.errors import InfeasibleError, InputError
from ..core.instance import Instance
from ..core.integers import check_int
from ..core.interruption import was_stopped
from ..core.metrics import cost
from ..core.params.solve_params import DEFAULTS, SolveParams
from ..core.progress import Progress, ignore
from ..core.schedule import Schedule
from ..core.validate import validate
from ..noise import Distribution, NoiseModel, run_noisy
from ..noise.noisy import draw_times
from ..noise.times import BLOCK
from .ensure_compiled import ensure_compiled
from .methods import find_method, loops_of
from .starts import WarmStart, requested_starts

MOST_SAMPLES = 4096
_FRESH = 1000  # samples in which the schedule found is judged at the end


@dataclass(frozen=True, slots=True)
class Judged:
    """A schedule and its costs: without noise, in the samples that were searched, and in fresh ones.

    Parameters
    ----------
    schedule
        A validated schedule.
    cost
        Cost of the schedule without noise, in ticks.
    searched
        Figures of the schedule's costs in the samples by which orders were chosen. These figures are too
        favourable to the chosen order, which was fitted to these samples.
    fresh
        Figures of the schedule's costs in 1,000 samples that played no part in the choice of a schedule.
    """

    schedule: Schedule
    cost: int
    searched: Distribution
    fresh: Distribution


@dataclass(frozen=True, slots=True)
class RobustResult:
    """The answer of `solve_robust`.

    Parameters
    ----------
    measure
        The measure that was minimised.
    robust
        The schedule found, with its costs.
    plain
        The schedule of least cost without noise that the same solve has found, for comparison.
    bound
        A proven lower bound of the cost without noise, in ticks, or None where nothing is proven. Nothing is
        ever proven about costs under noise.
    samples
        Number of samples in which the search measured schedules.
    seconds
        Wall time of the solve.
    reason
        If a signal ended the search early, `interrupted` or `terminated`; else empty.
    """

    measure: Measure
    robust: Judged
    plain: Judged
    bound: int | None
    samples: int
    seconds: float
    reason: str = ""

    @property
    def schedule(self) -> Schedule:
        """The schedule found, which the validator has accepted."""
        return self.robust.schedule


def solve_robust(
    instance: Instance,
    measure: Measure | str,
    models: Sequence[NoiseModel],
    *,
    samples: int = 256,
    time_limit: float | None = 60,
    workers: int | None = None,
    seed: int = 0,
    warm_start: WarmStart = "best",
    progress: Progress | None = None,
    params: SolveParams = DEFAULTS,
) -> RobustResult:
    """Search for a schedule with the least mean or 95th percentile of its cost under noise.

    The method `improve` first searches for the least cost without noise. Annealing then starts from the
    schedule of `improve` or from a warm start, whichever has the least measure in random samples, and judges
    every move by these same samples. So the annealed order is fitted to these samples, and 1,000 other ones
    decide whether the annealed schedule or one of those known before is returned. The costs of the returned
    schedule are then measured in another 1,000 samples, which decide nothing. Memory limits and precedences
    hold in every sample; they do not depend on durations.

    Parameters
    ----------
    instance
        The problem; it must be one that the method `improve` takes.
    measure
        `mean` or `p95`.
    models
        At least one model of noise.
    samples
        Number of samples by which the search judges moves, 1 to 4096. With more samples a move takes longer.
    time_limit
        Wall seconds. None for no limit; the number of moves then depends on the size of the instance.
    workers, seed, warm_start, progress, params
        As for `tightpipe.solve`. The seed also determines the samples.

    Returns
    -------
    RobustResult
        The schedule, with figures of its costs in the samples searched and in fresh ones.

    Raises
    ------
    InputError
        If an option is out of range, if a model does not fit the instance, or if `improve` does not take the
        instance.
    InfeasibleError
        If the instance has no schedule at all.
    """
    least, allowance = _measure(measure), Allowance(time_limit, workers, seed, params=params)
    check_int("samples", samples, 1, MOST_SAMPLES)
    _check(instance, models)
    improve = find_method("improve")
    run = improve.load()
    ensure_compiled((*loops_of(improve, instance.placement.name, warm_start), "noise", "robust"))
    budget, begun = allowance.begin(), perf_counter()
    first = budget if budget.endless else budget.part(budget.params.robust.plain)
    plain = run(instance, first, warm_start, progress or ignore)
    found = plain.schedule
    assert found is not None, "improve has a schedule for every feasible instance"
    starts = [found, *(start.schedule for start in sorted(requested_starts(instance, warm_start, budget)))]
    blocks = [draw_times(instance, models, seed, block) for block in range(-(-samples // BLOCK))]
    start = _least(starts, models, least, samples, seed, budget.threads)
    reason = plain.reason if was_stopped(plain.reason) else ""
    if not reason:
        annealed, reason = robust_search(start, blocks, samples, least, budget)
        starts.append(_validated(annealed))
    chosen = _least(starts, models, least, budget.params.robust.choosing, _further(seed, 1), budget.threads)
    robust, beside = _judge([chosen, found], models, samples, seed, budget.threads)
    return RobustResult(least, robust, beside, plain.bound, samples, perf_counter() - begun, reason)


def _measure(value: Measure | str) -> Measure:
    try:
        return Measure(value)
    except ValueError:
        raise InputError(f"must be one of {', '.join(Measure)}", key="robust", value=value) from None


def _check(instance: Instance, models: Sequence[NoiseModel]) -> None:
    if not models:
        raise InputError("needs at least one model of noise, e.g. jitter:0.1", key="noise")
    for model in models:
        model.check(instance)
    refuse_unmodelled("improve", instance, Rule.FLUSHES)
    reason = instance.infeasibility()
    if reason is not None:
        raise InfeasibleError(reason)


def _validated(schedule: Schedule) -> Schedule:
    violations = validate(schedule.instance, schedule)
    if violations:
        raise AssertionError(f"the search found an invalid schedule, please report: {violations[0]}")
    return schedule


def _least(
    schedules: Sequence[Schedule],
    models: Sequence[NoiseModel],
    measure: Measure,
    samples: int,
    seed: int,
    workers: int,
) -> Schedule:
    """Return the schedule with the least measure in random samples."""
    found = run_noisy(schedules, models, samples=samples, seed=seed, workers=workers)
    return min(found, key=lambda noisy: getattr(noisy.distribution, measure)).schedule


def _further(seed: int, step: int) -> int:
    return (seed + step) % 2**31


def _judge(
    schedules: Sequence[Schedule], models: Sequence[NoiseModel], samples: int, seed: int, workers: int
) -> list[Judged]:
    """Return each schedule with figures of its costs in the samples searched and in fresh ones."""
    searched = run_noisy(schedules, models, samples=samples, seed=seed, workers=workers)
    fresh = run_noisy(schedules, models, samples=_FRESH, seed=_further(seed, 2), workers=workers)
    return [
        Judged(noisy.schedule, cost(noisy.schedule), noisy.distribution, new.distribution)
        for noisy, new in zip(searched, fresh, strict=True)
    ]
