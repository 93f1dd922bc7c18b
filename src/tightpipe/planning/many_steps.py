"""A cut and a placement that serve many training steps, whose batches are sampled.

Each step gets orders of its own (`StepPlanner`), while the candidate stays. The first candidates of each
configuration are the best ones for the mean microbatch, and others are neighbours of the best one so far. All
of them schedule the same sampled batches, so that their difference is not that of the batches: first by list
schedules, and the best ones by a search for orders. The one with the least mean cost wins. What the stages of
a candidate, or of a model, cost is a law in the lengths of sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, islice, product
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from ..base.errors import InputError
from ..base.interruption import raise_again, reason_of
from ..base.tables import aligned_text
from ..kernels.compiled import ensure_compiled
from ..model.instance_file import law_to_dict
from ..model.law import CostLaw, Law, Microbatch, squares_of
from ..model.placement import Placement
from ..model.result import LogEntry, Progress, Result, ignore, lines_of, share_text
from ..params.budget import Allowance, Budget, TimeUpError
from ..params.solve_params import DEFAULTS, SolveParams
from ..registry.methods import IMPROVE_WIDE
from ..registry.solve import solve
from ..steps import StepPlanner
from .candidate import Candidate, candidate_to_dict, check_stage, limits_of, numbers_of, step_of
from .candidates_by_list import crowded
from .cluster import Network
from .configuration import Configuration, configurations_of
from .model_law import model_at
from .partitions import relaxed_candidate, rushed_candidate, seeds
from .planner import loops_of_plan, sources_of
from .problem import PlanningProblem, placements_of
from .public_models import ModelShape
from .result import placement_text, stages_text
from .search import neighbours
from .shapes import Training, problem_of


def stage_law(
    shape: ModelShape,
    training: Training,
    *,
    devices: int,
    placement: str = "v",
    reserve: int | str = 0,
    node_size: int | None = None,
) -> CostLaw:
    """Return the costs of a model's stages as laws in the lengths of the sequences of a microbatch.

    Each stage has as many blocks as any other, or one more; the first also has the embedding, and the last
    the head. A message takes as long as on the slowest link. Raise an InputError if there are fewer blocks
    than stages, or a device does not hold its static state.

    - `shape`, `training`: the model, and how it is trained. Only the batches themselves have lengths and
      sizes of microbatches.
    - `devices`, `reserve`, `node_size`: as in `model_file`.
    - `placement`: name of the placement, with its usual number of stages per device.
    """
    where = Placement(placement, devices)
    stages, blocks = where.stages, shape.layers
    if blocks < stages:
        rule = f"must be at most {blocks} blocks; {placement} on {devices} devices has {stages} stages"
        raise InputError(rule, key="devices", value=devices)
    taken = {"devices": devices, "reserve": reserve, "node_size": node_size}
    problem = problem_of(shape, training, microbatches=1, slices=(1,), **taken)
    cuts = (0, *(1 + blocks * s // stages for s in range(1, stages)), blocks + 2)
    law = law_of_stages(problem, Candidate(where, cuts, ((),) * stages))
    for device, limit in enumerate(law.limit if isinstance(law.limit, tuple) else ()):
        if limit <= 0:
            rule = f"must be more: device {device} has no memory left beside its static state"
            raise InputError(rule, key="devices", value=devices)
    return law


def law_of_stages(problem: PlanningProblem, candidate: Candidate) -> CostLaw:
    """Return the costs of a candidate's stages as laws, for microbatches of all lengths.

    A recomputed layer keeps the larger one of what it could keep at the microbatches of the problem. The law
    of messages is that of the longest message on the slowest link.

    Raises
    ------
    InputError
        If a stage lacks an operation that it must have.
    """
    assert problem.law is not None
    for stage, recomputed in zip(candidate.stages, candidate.recomputed, strict=True):
        check_stage(problem, stage, recomputed)
    layers = [dict(layer.laws) for layer in problem.law.layers]
    kinds = dict(pair for stage in candidate.recomputed for pair in stage)
    again = {i: dict(dict(problem.law.layers[i].kinds)[kind]) for i, kind in kinds.items()}
    effects = {i: problem.model.layers[i].effect(kind) for i, kind in kinds.items()}

    def sums(value: Callable[[int], Law]) -> tuple[Law, ...]:
        return tuple(sum((value(i) for i in range(*stage)), Law()) for stage in candidate.stages)

    def of(key: str) -> Callable[[int], Law]:
        return lambda i: layers[i].get(key, Law())

    def longer(i: int) -> Law:
        return again[i]["ticks"] if i in again else Law()

    def together(i: int) -> Law:
        apart = layers[i]["backward"] + layers[i]["weight"]
        both = layers[i]["backward"] and layers[i]["weight"]
        return (layers[i].get("fused", apart) if both else apart) + longer(i)

    def needed(i: int) -> Law:
        if i in again and effects[i].spared:
            return again[i]["weight_activation"]
        return of("weight_activation")(i) if layers[i]["weight"] else Law()

    def held(i: int) -> Law:
        if i not in again or not effects[i].saved:
            return of("activation")(i)
        layer, effect = problem.model.layers[i], effects[i]
        late = layer.activation - effect.saved == layer.needed - effect.spared
        return needed(i) if late else again[i]["activation"]

    stages, sampling = numbers_of(problem, candidate), problem.batch.sampling
    sizes = [] if sampling is None else _largest(sampling.points)  # a B takes most there while it recomputes
    longest = (replace(problem, model=model_at(problem.law, *size)) for size in sizes)
    units = (stages, *(numbers_of(one, candidate) for one in longest))
    largest = max(range(len(stages)), key=lambda s: stages[s].output)
    limits = limits_of(problem, candidate.placement, units)
    return CostLaw(
        candidate.placement,
        sums(of("forward")),
        sums(lambda i: layers[i]["backward"] + longer(i)),
        sums(of("weight")),
        fused=sums(together) if any("fused" in layer for layer in layers) else None,
        comm=_comm(problem, of("output")(candidate.cuts[largest + 1] - 1)),
        memory=(sums(held), sums(lambda i: needed(i) + held(i) * -1), sums(lambda i: needed(i) * -1)),
        limit=None if limits is None else tuple(limits),
        objective=problem.space.objective,
        step=step_of(problem, candidate.placement, stages),
    )


def _largest(points: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the points, tokens and squares, of which no other one has as much of both."""
    found: list[tuple[int, int]] = []
    for point in sorted(set(points), reverse=True):
        if not found or point[1] > found[-1][1]:
            found.append(point)
    return found


def _comm(problem: PlanningProblem, message: Law) -> Law | int | tuple[tuple[int, ...], ...]:
    """Return the law of the ticks of a message, on the slowest link; `message` is the law of its bytes."""
    network = problem.cluster.comm
    if not isinstance(network, Network):
        return network
    return Law(float(network.latency)) + message * float(1 / network.bandwidth)


_QUICK = 0.5  # share of the time for list schedules
_EACH = 2  # candidates of each configuration in the sequence of their bounds for the mean microbatch
_NEIGHBOURS = 500  # of the best candidate, until one is better
_FINALISTS = 2  # candidates whose orders are searched for


@dataclass(frozen=True, slots=True, repr=False)
class StepsPlan:
    """A candidate and its orders for sampled steps, with a bound of the mean cost of all plans."""

    problem: PlanningProblem  #: the planning problem, whose batch is sampled
    bound: float  #: no candidate has a lower mean cost on these batches, in ticks
    #: the candidate and the costs of its stages at all lengths; None where none was found
    candidate: Candidate | None = None
    law: CostLaw | None = None
    #: for each step the schedule of its batch, which has passed the validator
    results: tuple[Result, ...] = ()
    considered: int = 0  #: number of candidates that scheduled all batches
    seconds: float = 0.0  #: wall time of the search
    reason: str = ""  #: why there is no plan, or why the search ended early; empty otherwise

    @property
    def costs(self) -> tuple[int, ...]:
        """The cost of each step in ticks."""
        return tuple(result.cost for result in self.results if result.cost is not None)

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

        lines = {
            "placement": self.candidate and placement_text(self.candidate.placement),
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
        devices = range(self.candidate.placement.devices)
        rows = [[str(device), *stages_text(problem, self.candidate, device)] for device in devices]
        table = aligned_text(["device", "stages", "recomputed"], rows, ("stages",))
        return f"{lines_of(lines)}\n\n{table}"

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
        As in `plan`, with the mean cost as that of a log entry. Without a limit, the search takes as long as
        searches do that would not end by themselves.

    Raises
    ------
    InputError
        As in `plan`, or if the batch is not sampled.
    """
    sampling = problem.batch.sampling
    if sampling is None:
        raise InputError("missing key 'lengths' in batch: a distribution of lengths")
    allowance = Allowance(time_limit, workers, seed, params=params)
    every = configurations_of(replace(problem, batch=replace(problem.batch, sampling=None)))
    configurations = [one for one in every if one.resident in problem.residents(one.placement)]
    ensure_compiled((*loops_of_plan(configurations), IMPROVE_WIDE))  # microbatches of a step differ
    bound = float(np.mean([least_cost(problem, batch) for batch in sampling.batches]))
    race = _Race(problem, bound, allowance, progress or ignore)
    reason = ""
    try:
        race.run(configurations)
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    found = race.answer()
    return replace(found, reason=reason or found.reason)


def _first(configurations: list[Configuration], budget: Budget) -> Iterator[Candidate]:
    """Yield the candidates of each configuration that are the best ones for the mean microbatch.

    These are the ones with the least bounds, variants that recompute more, and the one with the least load.
    """
    sources = sources_of(configurations, budget)
    for source, turn in product(sorted(sources, key=lambda source: source.bound), range(_EACH)):
        configuration, candidate = source.configuration, None
        # of longer stages, too many ways to be recomputed may be possible
        with suppress(TimeUpError, InputError):
            candidate = source.take(budget) or (None if turn else rushed_candidate(configuration, budget))
        if candidate is None:
            continue
        yield candidate
        if turn == 0:
            yield from seeds(configuration.problem, candidate, budget.params.plan.recomputed)
            with suppress(TimeUpError, InputError):
                cap = int(budget.params.plan.cap * source.bound) + 1
                relaxed = relaxed_candidate(configuration, cap, 1.0, budget)
                yield from () if relaxed is None else (relaxed,)


class _Race:
    """Candidates that schedule the sampled batches, and the results of those that are done with all."""

    def __init__(
        self, problem: PlanningProblem, bound: float, allowance: Allowance, progress: Progress
    ) -> None:
        assert problem.batch.sampling is not None
        self._problem, self._batches, self._bound = problem, problem.batch.sampling.batches, bound
        self._allowance, self._progress = allowance, progress
        self._budget, self._begun = allowance.begin().with_deadline(), perf_counter()
        params = allowance.params  # a heuristic takes no longer than it needs
        self._quick = replace(params, starts=replace(params.starts, least=0.0))
        self._results: dict[Candidate, tuple[Result, ...]] = {}
        self._seen: set[Candidate] = set()
        self._best: Candidate | None = None
        self._reason = "no candidate was found in this time"

    def run(self, configurations: list[Configuration]) -> None:
        """Schedule all batches of many candidates by lists; then search for the orders of the best ones."""
        until = self._budget.part(_QUICK)
        for candidate in _first(configurations, until.part(_QUICK)):
            if until.left > 0 or self._best is None:
                self._schedule(candidate)
        random, climbs = Random(self._allowance.seed), True
        while climbs and self._best is not None:
            here = self._best
            for candidate in islice(neighbours(self._problem, here, random), _NEIGHBOURS):
                if until.left <= 0 or self._best is not here:
                    break
                self._schedule(candidate)
            climbs = self._best is not here and until.left > 0
        finalists = sorted(self._results, key=self._mean)[:_FINALISTS]
        for candidate, part in zip(finalists, self._budget.in_turn(len(finalists)), strict=True):
            self._improve(candidate, part)

    def _schedule(self, candidate: Candidate) -> None:
        if candidate in self._seen:
            return
        self._seen.add(candidate)
        try:
            law, results = law_of_stages(self._problem, candidate), []
            for batch in self._batches:
                if self._best is not None and self._budget.left <= 0:
                    return
                results.append(solve(law.instance(batch), "list", time_limit=0.0, params=self._quick))
                if results[-1].schedule is None:
                    self._reason = f"a sampled batch has no schedule: {results[-1].reason}"
                    return
        except InputError as error:  # a long microbatch does not fit
            self._reason = f"a sampled batch does not fit: {error}"
            return
        self._keep(candidate, results)

    def _keep(self, candidate: Candidate, results: list[Result]) -> None:
        self._results[candidate] = tuple(results)
        if self._best is None or self._mean(candidate) < self._mean(self._best):
            self._best = candidate
        seconds, mean = perf_counter() - self._begun, self._mean(self._best)
        self._progress(LogEntry(seconds, round(mean), round(self._bound)))

    def _improve(self, candidate: Candidate, until: Budget) -> None:
        law, allowance = law_of_stages(self._problem, candidate), self._allowance
        planner = StepPlanner(law, workers=allowance.threads, seed=allowance.seed, params=allowance.params)
        found = list(self._results[candidate])
        for i, part in enumerate(until.in_turn(len(found))):
            if part.left <= 0:
                return
            result = planner.order(self._batches[i], time_limit=part.left)
            if (result.cost or 0, -(result.bound or 0)) < (found[i].cost or 0, -(found[i].bound or 0)):
                found[i] = result
            self._keep(candidate, found)
            raise_again(result.reason)

    def answer(self) -> StepsPlan:
        """Return the candidate with the least mean cost."""
        seconds, best = perf_counter() - self._begun, self._best
        if best is None:
            return StepsPlan(self._problem, self._bound, seconds=seconds, reason=self._reason)
        law = law_of_stages(self._problem, best)
        results, count = self._results[best], len(self._results)
        return StepsPlan(self._problem, self._bound, best, law, results, count, seconds)

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
