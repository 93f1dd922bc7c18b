"""A cut and a placement that serve many training steps, whose batches are sampled.

The microbatches of every step differ, and each step gets orders of its own (`StepPlanner`). What stays is the
candidate: the cut, the placement and the recomputed layers. Candidates come from a search for the mean
microbatch. The best ones then schedule the sampled batches, all of them the same ones, so that the difference
of two candidates is not that of their batches. The one with the least mean cost wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from time import perf_counter
from typing import Any

import numpy as np

from ..base.errors import InputError
from ..base.interruption import reason_of
from ..base.tables import aligned_text
from ..model.law import CostLaw, Microbatch, squares_of
from ..model.law_file import law_to_dict
from ..model.result import Progress, Result, ignore, lines_of, share_text
from ..params.budget import Allowance, Budget
from ..params.solve_params import DEFAULTS, SolveParams
from ..registry.ensure_compiled import ensure_compiled
from ..steps import StepPlanner
from .candidate import Candidate, candidate_to_dict
from .candidate_pool import CandidatePool
from .candidates_by_list import crowded
from .configuration import configurations_of
from .planner import loops_of_plan, sources_of
from .problem import PlanningProblem, placements_of
from .result import layer_names
from .search import Search
from .stage_laws import law_of_stages

_OF_THE_MEAN = 0.3  # share of the time in which the mean microbatch is planned
_QUICK = 0.5  # share of the rest for list schedules
_EACH = 3  # candidates of each configuration that schedule the batches
_FINALISTS = 2  # candidates whose orders are searched for


@dataclass(frozen=True, slots=True, repr=False)
class StepsPlan:
    """A candidate and its orders for sampled steps, with a bound of the mean cost of all plans.

    Parameters
    ----------
    problem
        The planning problem, whose batch is sampled.
    bound
        No candidate has a lower mean cost on these batches, in ticks.
    candidate, law
        The candidate and the costs of its stages at all lengths; None where none was found.
    results
        For each step the schedule of its batch, which has passed the validator.
    considered
        Number of candidates that scheduled all batches.
    seconds
        Wall time of the search.
    reason
        Why there is no plan, or why the search ended early; empty otherwise.
    """

    problem: PlanningProblem
    bound: float
    candidate: Candidate | None = None
    law: CostLaw | None = None
    results: tuple[Result, ...] = ()
    considered: int = 0
    seconds: float = 0.0
    reason: str = ""
    _costs: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        costs = tuple(result.cost for result in self.results if result.cost is not None)
        object.__setattr__(self, "_costs", costs)

    @property
    def costs(self) -> tuple[int, ...]:
        """The cost of each step in ticks."""
        return self._costs

    @property
    def mean(self) -> float | None:
        """The mean cost of a step in ticks; None without a plan."""
        return float(np.mean(self.costs)) if self.costs else None

    @property
    def percentile(self) -> float | None:
        """The cost in ticks that 95 % of the steps do not exceed; None without a plan."""
        return float(np.quantile(self.costs, 0.95)) if self.costs else None

    @property
    def bound_of_orders(self) -> float | None:
        """The mean of the bounds of the steps: no orders of this candidate have a lower mean."""
        return float(np.mean([result.bound or 0 for result in self.results])) if self.results else None

    @property
    def gap(self) -> float | None:
        """(mean - bound) / mean; None without a plan."""
        return None if self.mean is None else (self.mean - self.bound) / self.mean

    def __str__(self) -> str:
        problem, unit = self.problem, self.problem.tick.unit

        def time(ticks: float | None) -> str | None:
            return None if ticks is None else f"{float(ticks * problem.tick.number):.1f} {unit}"

        shape = {}
        if self.candidate is not None:
            placement = self.candidate.placement
            chunks = placement.stages_per_device
            shape = {"placement": f"{placement.name}, {placement.devices} device(s), {chunks} chunk(s)"}
        lines = {
            **shape,
            "steps": f"{len(self.results)} sampled, the same ones for every plan",
            "mean": time(self.mean) and f"{time(self.mean)} per step",
            "percentile": time(self.percentile) and f"{time(self.percentile)} at 95 %",
            "bound": f"{time(self.bound)}: no plan in the search space has a lower mean",
            "bound_of_orders": time(self.bound_of_orders),
            "gap": share_text(self.gap),
            "seconds": f"{self.seconds:.3f}, {self.considered} candidate(s) scheduled",
            "reason": self.reason,
        }
        if self.candidate is None:
            return lines_of(lines)
        return f"{lines_of(lines)}\n\n{_table(problem, self.candidate)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        keys = ("costs", "mean", "percentile", "bound", "bound_of_orders", "gap", "considered", "reason")
        figures = {key: getattr(self, key) for key in keys}
        tick = {"tick": str(self.problem.tick), "seconds": round(self.seconds, 3)}
        return figures | tick | candidate_to_dict(self.candidate)

    def law_file(self) -> dict[str, Any]:
        """Return the content of a law file of the stages, which says the layers of each, too."""
        assert self.law is not None
        assert self.candidate is not None
        said = candidate_to_dict(self.candidate)
        return law_to_dict(self.law) | {key: said[key] for key in ("stages", "recomputed_layers")}


def _table(problem: PlanningProblem, candidate: Candidate) -> str:
    rows = []
    for device in range(candidate.placement.devices):
        held = candidate.placement.stages_on(device)
        names = (f"{s}: {layer_names(problem.model.layers, *candidate.stages[s])}" for s in held)
        rows.append([str(device), "; ".join(names), str(sum(len(candidate.recomputed[s]) for s in held))])
    return aligned_text(["device", "stages", "recomputed"], rows, ("stages",))


def plan_steps(
    problem: PlanningProblem,
    *,
    time_limit: float | None = 60,
    workers: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    params: SolveParams = DEFAULTS,
) -> StepsPlan:
    """Find the cut, the placement and the recomputed layers with the least mean cost of sampled steps.

    Parameters
    ----------
    problem
        The planning problem; its batch says the distribution of lengths.
    time_limit, workers, seed, progress, params
        As in `plan`; `progress` is called during the search for the mean microbatch.

    Raises
    ------
    InputError
        As in `plan`, or if the batch is not sampled.
    """
    sampling = problem.batch.sampling
    if sampling is None:
        raise InputError("missing key 'lengths' in batch: a distribution of lengths")
    allowance = Allowance(time_limit, workers, seed, params=params)
    mean = replace(problem, batch=replace(problem.batch, sampling=None))
    configurations = configurations_of(mean)
    ensure_compiled(loops_of_plan(configurations))
    begun, budget = perf_counter(), allowance.begin().with_deadline()
    part = budget.part(_OF_THE_MEAN)
    search = Search(mean, sources_of(configurations, part), part, progress or ignore)
    race = _Race(problem, allowance)
    bound = float(np.mean([least_cost(problem, batch) for batch in sampling.batches]))
    try:
        reason = search.run()
        if search.pool.best is None:
            search.rush()
        race.run(list(_first(search.pool)), budget)
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    return replace(race.answer(bound), reason=reason or race.reason, seconds=perf_counter() - begun)


def _first(pool: CandidatePool) -> Iterator[Candidate]:
    """Yield the candidates with the cheapest schedules of each placement, the cheapest of all first."""
    ranked = sorted(pool.scheduled, key=lambda found: found.cost or 0)
    taken: dict[Any, int] = {}
    for found in ranked:
        key = found.candidate.placement
        taken[key] = taken.get(key, 0) + 1
        if taken[key] <= _EACH:
            yield found.candidate


class _Race:
    """Candidates that schedule the sampled batches, and the results of those that are done with all."""

    def __init__(self, problem: PlanningProblem, allowance: Allowance) -> None:
        self._problem, self._allowance = problem, allowance
        self._planners: dict[Candidate, StepPlanner] = {}
        self._results: dict[Candidate, tuple[Result, ...]] = {}
        self.reason = "no candidate was found in this time"

    def run(self, candidates: list[Candidate], budget: Budget) -> None:
        """Schedule all batches of each candidate by a list; then search for the orders of the best ones."""
        until = budget.part(_QUICK)
        for candidate in candidates:
            if until.left > 0 or not self._results:
                self._schedule(candidate)
        finalists = sorted(self._results, key=self._mean)[:_FINALISTS]
        for candidate, part in zip(finalists, budget.in_turn(len(finalists)), strict=True):
            self._improve(candidate, part)

    def _schedule(self, candidate: Candidate) -> None:
        allowance = self._allowance
        try:
            law = law_of_stages(self._problem, candidate)
            planner = StepPlanner(
                law, workers=allowance.threads, seed=allowance.seed, params=allowance.params
            )
            results = tuple(planner.quick(law.instance(batch)) for batch in self._batches)
        except InputError as error:  # a long microbatch does not fit
            self.reason = f"a sampled batch does not fit: {error}"
            return
        lacking = next((result for result in results if result.schedule is None), None)
        if lacking is not None:
            self.reason = f"a sampled batch has no schedule: {lacking.reason}"
            return
        self._planners[candidate], self._results[candidate] = planner, results

    def _improve(self, candidate: Candidate, until: Budget) -> None:
        planner, found = self._planners[candidate], list(self._results[candidate])
        for i, part in enumerate(until.in_turn(len(found))):
            result = planner.order(self._batches[i], time_limit=part.left)
            if (result.cost or 0, -(result.bound or 0)) < (found[i].cost or 0, -(found[i].bound or 0)):
                found[i] = result
            self._results[candidate] = tuple(found)

    def answer(self, bound: float) -> StepsPlan:
        """Return the candidate with the least mean cost."""
        if not self._results:
            return StepsPlan(self._problem, bound)
        best = min(self._results, key=self._mean)
        self.reason = ""
        law = self._planners[best].law
        return StepsPlan(self._problem, bound, best, law, self._results[best], len(self._results))

    @property
    def _batches(self) -> tuple[tuple[Microbatch, ...], ...]:
        assert self._problem.batch.sampling is not None
        return self._problem.batch.sampling.batches

    def _mean(self, candidate: Candidate) -> float:
        return float(np.mean([result.cost or 0 for result in self._results[candidate]]))


_ROUNDED = 1.5  # ticks by which rounding may shorten F, B and W of a microbatch at a stage


def least_cost(problem: PlanningProblem, batch: tuple[Microbatch, ...]) -> float:
    """Return a lower bound, in ticks, of the cost of a batch under every plan of the search space.

    A step takes at least the work of the busiest device. Whatever the cut, that is at least the mean of all
    devices, and at least what `crowded` says of the layers' work. Laws of stages are rounded to whole ticks:
    F, B and W each by half a tick at most, of which the bound takes account.
    """
    assert problem.law is not None
    points = np.array([(1, sum(one), squares_of(one)) for one in batch], float)
    work: list[float] = []
    for layer, equal in groupby(problem.law.layers):
        times = {key: points @ np.array([law.fixed, law.tokens, law.squares]) for key, law in layer.laws}
        apart = times["backward"] + times["weight"]
        together = np.minimum(apart, times["fused"]) if "fused" in times else apart
        work += [float((times["forward"] + together).sum())] * len(list(equal))
    ordered = sorted(work, reverse=True)
    return min(
        max(sum(work) / placement.devices, crowded(ordered, placement.devices))
        - _ROUNDED * len(batch) * placement.stages_per_device
        for placement in placements_of(problem)
    )
