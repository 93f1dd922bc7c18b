"""Alternatives to a plan: every schedule family at equal memory, each with its own best partition.

Each family also has a plan with the uniform split, the baseline that Megatron-LM makes by default: equally
many blocks on every stage, the embedding with the first block and the head with the last one, however
long they take. So the table tells how much comes from the partition and how much from the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice, pairwise, product
from pathlib import Path
from time import perf_counter

from tightpipe.heuristics import HEURISTICS

from .. import drawing
from ..base.errors import InputError
from ..base.interruption import raise_again
from ..export.model_split import EMBEDDING, HEAD, part_of
from ..model.placement import Placement
from ..model.result import Progress, Status
from ..params.budget import Allowance, Budget
from ..registry.solve import solve
from .candidate import Candidate, bytes_lacking, instance_of
from .device_bound_kernel import NEVER
from .gathers import with_gathers
from .layered_model import Model
from .plan_file import PlanFolder, kept_plan
from .plan_table import Row, drawn_point, least_milliseconds, milliseconds, plan_row
from .planner import plan as find_plan
from .problem import COMBINED, RUNTIMES, SOLVER, PlanningProblem
from .result import Plan, adopted, no_plan
from .runtimes import ways_told

BEST = "best"
_PUBLISHED = (
    ("1f1b", "linear"),
    ("zb-h1", "linear"),
    ("interleaved-1f1b", "loop"),
    ("interleaved-overlap", "loop"),
    ("list", "wave"),
    ("v-min", "v"),
    ("v-half", "v"),
    ("v-zb", "v"),
    ("greedy-v", "v"),
    ("dualpipe-v", "v"),
)
"""Methods with the placement for which they were published; for `wave` there is none, so `list` is taken."""
_SLICED = ("seq-1f1b", "linear")


@dataclass(frozen=True, slots=True)
class Family:
    """A scheduling method on one placement."""

    method: str  #: name of a method; `best` stands for all heuristics and the method `best`
    placement: str  #: name of the placement
    problem: PlanningProblem  #: the planning problem that asks for the best plan of this family


def families_of(problem: PlanningProblem) -> Iterator[Family]:
    """Yield the published families, and then `best` on each placement of the search space.

    The published families are yielded even if the search space does not have their placement, if the runtime
    of the search space runs them.
    """
    runtime = RUNTIMES[problem.space.runtime]
    every = replace(problem, space=replace(problem.space, methods=None)).methods_for()
    known = _PUBLISHED if max(problem.space.slices) == 1 else (*_PUBLISHED, _SLICED)
    published = [(m, p) for m, p in known if m in every and p in runtime.placements]
    if not problem.has_pairs:
        published = [(m, p) for m, p in published if m not in COMBINED]
    for method, placement in (*published, *((BEST, name) for name in problem.space.placements)):
        space = replace(
            problem.space,
            placements=(placement,),
            chunks=_chunks(problem, placement),
            methods=None if method == BEST else (method,),
        )
        yield Family(method, placement, replace(problem, space=space))


def _chunks(problem: PlanningProblem, placement: str) -> tuple[int, ...] | None:
    """Return the numbers of chunks of the search space that suit the placement; None for its usual number.

    For `linear` only the usual one chunk is useful: consecutive stages on one device are one stage in parts.
    """
    if placement == "linear":
        return None
    allowed = []
    for count in problem.space.chunks or ():
        with suppress(InputError):
            Placement(placement, 2, count)
            allowed.append(count)
    return tuple(allowed) or None


def uniform_plan(family: Family, allowance: Allowance) -> Plan:
    """Return the plan of a family with the uniform split.

    Of several numbers of devices, chunks or gathered stages, the fastest plan is returned. It recomputes the
    first blocks of every stage, as few as the memory allows. It has no bound, since no other split was looked
    at. If no plan is found, the result has no schedule, and its `reason` says why.
    """
    begun, budget, searched = perf_counter(), allowance.begin(), list[Candidate]()
    sizes = list(product(family.problem.cluster.devices, family.problem.space.chunks or (None,)))
    turns = zip(sizes, budget.in_turn(len(sizes)), strict=True)
    answers = [answer for size, part in turns for answer in _on(family, *size, allowance, part, searched)]
    plans = [answer for answer in answers if isinstance(answer, Plan)]
    seconds, considered = perf_counter() - begun, len(searched)
    if plans:
        best = min(plans, key=lambda plan: plan.cost or 0)
        return replace(best, seconds=seconds, considered=considered)
    reason = str(answers[-1])
    return no_plan(family.problem, reason, status=Status.UNKNOWN, seconds=seconds, considered=considered)


def _on(
    family: Family,
    devices: int,
    chunks: int | None,
    allowance: Allowance,
    until: Budget,
    searched: list[Candidate],
) -> Iterator[Plan | str]:
    """Yield for each number of gathered stages the plan on `devices` devices, or why there is none.

    They share the time of `until`. The function adds to `searched` each candidate for which it looks for a
    schedule.
    """
    try:
        placement = Placement(family.placement, devices, chunks)
        residents = family.problem.residents(placement)
        for kept, part in zip(residents, until.in_turn(len(residents)), strict=True):
            limits = allowance if until.endless else replace(allowance, time_limit=part.left)
            yield _with(family, uniform_candidates(family.problem, placement, kept), limits, searched)
    except InputError as error:  # the placement is not possible, or has more stages than there are blocks
        yield str(error)


def _with(
    family: Family, candidates: Iterator[Candidate], allowance: Allowance, searched: list[Candidate]
) -> Plan | str:
    """Return the plan of the first candidate that has a schedule, or why even the last one has none."""
    reason, problem = "", family.problem
    for candidate in candidates:
        lack = bytes_lacking(problem, candidate)
        if any(lack):
            worst = lack.index(max(lack))
            reason = f"device {worst} lacks {lack[worst]} bytes to hold one microbatch"
            continue
        searched.append(candidate)
        asked = instance_of(problem, candidate)
        results = (solve(asked, method, **allowance.options) for method in _methods(family, candidate))
        result = min(results, key=lambda one: NEVER if one.cost is None else one.cost)
        raise_again(result.reason)  # a solve that a signal ended early gives no plan
        if result.schedule is not None:
            schedule = with_gathers(problem, candidate, result.schedule)
            return Plan(
                *(problem, Status.FEASIBLE, candidate, schedule, result.method, None, None),
                *(result.seconds, 1, (), result.reason),
            )
        reason = result.reason
    return reason


def _methods(family: Family, candidate: Candidate) -> list[str]:
    """Return the methods that may schedule a candidate: `best` only if the runtime runs any order."""
    known = family.problem.methods_for(any(candidate.recomputed))
    if family.method != BEST or SOLVER in known:
        return [family.method]
    return [name for name in known if family.placement in HEURISTICS[name].placements]


def uniform_candidates(
    problem: PlanningProblem, placement: Placement, kept: int | None = None
) -> Iterator[Candidate]:
    """Yield the uniform split: without recomputation, then with the first 1, 2, ... blocks of each stage.

    All blocks are recomputed in one kind, those of the search space one after another, and as the runtime can
    be told. Of each device,
    `kept` stages stay gathered. Microbatches are whole, or cut in the first way that the search space has.
    """
    cuts, blocks = uniform_cuts(problem.model, placement.stages), _blocks(problem.model)
    slices = problem.slicings[0]
    whole = Candidate(placement, cuts, ((),) * placement.stages, slices, kept)
    yield whole
    for kind in problem.space.recompute:
        if RUNTIMES[problem.space.runtime].one_kind:
            yield from islice(ways_told(problem, whole, kind), 1, None)
            continue
        stages = (problem.model.recomputable(*stage, (kind,)) for stage in pairwise(cuts))
        able = [tuple(pair for pair in stage if pair[0] in blocks) for stage in stages]
        for count in range(1, max(map(len, able)) + 1):
            yield Candidate(placement, cuts, tuple(stage[:count] for stage in able), slices, kept)


def uniform_cuts(model: Model, stages: int) -> tuple[int, ...]:
    """Return the cuts that put equally many blocks on each stage.

    The first stages get one block more if need be. Every layer between the embedding and the head is a block.

    Raises
    ------
    InputError
        If there are fewer blocks than stages.
    """
    blocks, count = _blocks(model), len(model.layers)
    each, more = divmod(len(blocks), stages)
    if not each:
        rule = f"has {len(blocks)} blocks, fewer than the {stages} stages of a uniform split"
        raise InputError(rule, key="layers", value=count)
    return (0, *(blocks.start + each * s + min(s, more) for s in range(1, stages)), count)


def _blocks(model: Model) -> range:
    """Return the indices of the blocks; if every layer is an embedding or a head, those of all layers."""
    parts = [part_of(layer.name, layer.kind) for layer in model.layers]
    inner = [i for i, part in enumerate(parts) if part not in (EMBEDDING, HEAD)]
    return range(inner[0], inner[-1] + 1) if inner else range(len(model.layers))


class Split(StrEnum):
    """How the layers are cut into stages."""

    UNIFORM = "uniform"  #: equally many blocks on each stage
    BEST = "best"  #: the best partition and recomputation that were found, the uniform one included


@dataclass(frozen=True, slots=True)
class Question:
    """One row of the table of alternatives: a family and how its layers are cut, without the plan."""

    family: Family
    split: Split

    @property
    def name(self) -> str:
        """The name of the row, e.g. ``1f1b linear uniform``."""
        return f"{self.family.method} {self.family.placement} {self.split}"

    def answer(self, allowance: Allowance, progress: Progress) -> Plan:
        """Return the plan of this row, from `uniform_plan` or `tightpipe.plan`; raise what these raise."""
        if self.split is Split.UNIFORM:
            return uniform_plan(self.family, allowance)
        return find_plan(self.family.problem, progress=progress, **allowance.options)


Alternative = tuple[Question, Plan]


def questions(problem: PlanningProblem) -> list[Question]:
    """Return the rows of the table of alternatives to a problem's plan."""
    return [Question(family, split) for family in families_of(problem) for split in Split]


def alternatives(
    asked: Sequence[Question],
    allowance: Allowance,
    folder: PlanFolder | None,
    begin: Callable[[str], Progress],
) -> Iterator[Alternative]:
    """Yield each row of the table with its plan, as soon as the plan is found.

    Of each family, the uniform split comes first, and counts as its best plan if no cheaper one is found.
    Each search gets the `allowance`. The folder, if any, keeps the plans, and a plan that is there is not
    searched for again. `begin` is called with the name of each row, and returns the `progress` of its search.
    A signal ends the search with a `KeyboardInterrupt`.
    """
    uniform: dict[Family, Plan] = {}
    for question in asked:
        family, watch = question.family, begin(question.name)
        other = uniform.get(family)

        def find(question: Question = question, watch: Progress = watch, other: Plan | None = other) -> Plan:
            return adopted(question.answer(allowance, watch), other)

        found = kept_plan(folder, question.name.replace(" ", "-"), family.problem, find)
        yield question, found
        uniform.setdefault(family, found)


def alternatives_rows(found: Sequence[Alternative]) -> list[Row]:
    """Return the rows of the table of alternatives as plain data.

    The column `of_the_fastest` has the throughput of a row's plan as a share of the highest throughput.
    """
    fastest = min((plan.cost for _, plan in found if plan.cost is not None), default=None)
    rows = []
    for question, plan in found:
        share = None if plan.cost is None or fastest is None else fastest / plan.cost
        family = {"family": question.family.method, "split": str(question.split)}
        placement = {"placement": question.family.placement}  # shown also in a row without a plan
        rows.append({**family, **plan_row(question.name, plan), **placement, "of_the_fastest": share})
    return rows


def draw_alternatives(found: Sequence[Alternative], path: str | Path) -> None:
    """Draw the step times of each family's best and uniform split, and the bound of the family."""
    points = [
        drawn_point(
            f"{question.family.method} {question.family.placement}",
            f"{question.split} split",
            milliseconds(plan, plan.cost),
            None if question.split is Split.UNIFORM else least_milliseconds(plan),
        )
        for question, plan in found
    ]
    drawing.draw_plans(points, path, x_label="", y_label="step time in ms")
