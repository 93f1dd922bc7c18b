"""What frameworks make of a plan: the cut of the model that they read, the schedule and the recomputation.

The module `problem` says what each framework runs. PyTorch has no B at stage 0, for which nobody waits: the W
there computes all. Megatron-LM recomputes in one kind, as much of every stage. Of cuts that are found with
other recomputation, `runnable` takes the least recomputation that Megatron-LM knows and that fits:
`--recompute-method block` with a number of blocks, or all blocks. Bounds are those of all ways.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from tightpipe.heuristics.family import one_f_one_b_order
from tightpipe.heuristics.interleaved import (
    group_sizes,
    interleaved_order,
    overlapped_interleaved_order,
)

from ..base.errors import InputError, NoScheduleError
from ..export import ModelSplit, split_model
from ..export.layouts import FULL
from ..export.model_split import BLOCK, MTP, part_of
from ..model.costs import Objective
from ..model.instance import Instance
from ..model.metrics import cost
from ..model.orders import order_of
from ..model.placement import Placement
from ..model.schedule import Schedule
from ..model.simulate import retime
from .candidate import Candidate, bytes_lacking, instance_of, resolved
from .gathers import step_ticks, with_gathers
from .layered_model import Layer, Recomputed
from .problem import COMBINED, RUNTIMES, PlanningProblem
from .result import Plan

_INTERLEAVED = {"interleaved-1f1b": interleaved_order, "interleaved-overlap": overlapped_interleaved_order}


def megatron_schedule(instance: Instance, group: int | None = None, *, combined: bool = False) -> Schedule:
    """Return the schedule that Megatron-LM runs by itself: 1F1B, or interleaved 1F1B with several stages.

    Raise an InputError or a NoScheduleError if it has none for the placement or the number of microbatches,
    or that takes more memory than there is. `combined` says whether interleaved 1F1B runs pairs, an F beside
    a BW.

    - `group`: microbatches of a group, if several stages take turns; None for the fewest that Megatron-LM
      accepts, because more of them take more memory.
    """
    placement, megatron = instance.placement, RUNTIMES["megatron"]
    if placement.name not in megatron.placements:
        rule = f"Megatron-LM runs {' and '.join(megatron.placements)}"
        raise InputError(rule, key="placement", value=placement.name)
    if not megatron.runs(placement, instance.microbatches):
        rule = "Megatron-LM needs two devices, and as many microbatches, to run several stages on each"
        raise InputError(rule, key="microbatches", value=instance.microbatches)
    if placement.stages_per_device == 1:
        linear = replace(instance, placement=Placement("linear", instance.devices))
        return replace(retime(linear, order_of(linear, one_f_one_b_order)), instance=instance)
    size = group or group_sizes(instance.devices, instance.microbatches)[0]
    make = _INTERLEAVED["interleaved-overlap" if combined else "interleaved-1f1b"]
    return retime(instance, order_of(instance, partial(make, group=size)))


def split_of(plan: Plan) -> ModelSplit:
    """Return which parts of the model each stage of a plan has, and which are recomputed.

    Equal layers of a stage are interchangeable, so the first of them are named as the recomputed ones.

    Raises
    ------
    NoScheduleError
        If there is no plan; the message says why.
    InputError
        If stages run on two devices each, microbatches are cut into slices, or the layers are not those of a
        model that frameworks know, by their kinds or names.
    """
    if plan.candidate is None or plan.instance is None:
        raise NoScheduleError(f"{plan.status}: {plan.reason}")
    plan.instance.refuse_slices("another program")
    if plan.schedule is not None:
        plan.schedule.refuse_copies("another program")
    layers, candidate = plan.problem.model.layers, plan.candidate
    if len(candidate.placement.routes) > 1:
        rule = "frameworks that read the cut of a model keep a stage on one device, this placement on two"
        raise InputError(rule, value=candidate.placement.name)
    recomputed = [
        _first_equal(layers, range(*stage), again)
        for stage, again in zip(candidate.stages, candidate.recomputed, strict=True)
    ]
    split = split_model(
        [layer.name for layer in layers],
        candidate.cuts,
        recomputed,
        candidate.placement.routes[0],
        microbatches=plan.problem.batch.microbatches,
        kinds=[layer.kind for layer in layers],
    )
    sharding = resolved(plan.problem, candidate).cluster.sharding
    return replace(
        split,
        group=_group_of(plan),
        combined=plan.method in COMBINED,
        shards=plan.problem.batch.data_parallel if sharding.gathered else None,
        resident=sharding.kept(candidate.placement.stages_per_device),
    )


def _group_of(plan: Plan) -> int | None:
    """Return the microbatches of a group if a plan's schedule is interleaved 1F1B; None otherwise."""
    if plan.schedule is None or plan.method not in _INTERLEAVED:
        return None
    p, n = plan.schedule.instance.devices, plan.schedule.instance.microbatches
    free = replace(plan.schedule.instance, memory=None, offload=None)
    for size in group_sizes(p, n):
        if order_of(free, partial(_INTERLEAVED[plan.method], group=size)) == plan.schedule.order:
            return size
    return None


def own_step(plan: Plan, target: str) -> int | None:
    """Return the ticks of a step of the framework that reads the cut of a plan; None without a schedule.

    Megatron-LM has a schedule of its own. Other frameworks run that of the plan, which they read from another
    file. The cost is that of the objective `step`.

    Raises
    ------
    InputError, NoScheduleError
        If the framework does not run the plan's placement or number of microbatches, or its own schedule
        takes more memory than there is.
    """
    if plan.candidate is None or plan.schedule is None:
        return None
    asked = replace(plan.problem, space=replace(plan.problem.space, objective=Objective.STEP))
    instance, split = instance_of(asked, plan.candidate), split_of(plan)
    if target == "megatron-layout":
        return cost(megatron_schedule(instance, split.group, combined=split.combined))
    schedule = with_gathers(asked, plan.candidate, retime(instance, plan.schedule.order))
    return step_ticks(asked, plan.candidate, schedule)


def _first_equal(layers: Sequence[Layer], stage: range, recomputed: Recomputed) -> Recomputed:
    """Return a stage's first layers that equal recomputed ones, as many in each kind as are recomputed."""
    left = defaultdict[Layer, list[str]](list)
    for index, kind in recomputed:
        left[layers[index]].append(kind)
    return tuple((index, left[layers[index]].pop(0)) for index in stage if left[layers[index]])


def runnable(problem: PlanningProblem, candidate: Candidate) -> tuple[tuple[Candidate, ...], ...]:
    """Return for each kind the candidates with the same cuts that the runtime can be told, and that may fit.

    The first one recomputes fewest blocks of each stage. Only its schedule says whether it fits: what is in
    flight before the first backward may be less than what is held later.
    """
    if not RUNTIMES[problem.space.runtime].one_kind or not any(candidate.recomputed):
        return ((candidate,),)
    return tuple(tuple(_fitting(problem, candidate, kind)) for kind in problem.space.recompute)


def _fitting(problem: PlanningProblem, candidate: Candidate, kind: str) -> Iterator[Candidate]:
    return (way for way in ways_told(problem, candidate, kind) if not any(bytes_lacking(problem, way)))


def ways_told(problem: PlanningProblem, candidate: Candidate, kind: str) -> Iterator[Candidate]:
    """Yield the candidates with the same cuts that recompute in a kind what Megatron-LM can be told.

    That is nothing, then some blocks of each stage, then all blocks.
    """
    return (replace(candidate, recomputed=way) for way in _ways(problem, candidate, kind))


def _ways(
    problem: PlanningProblem, candidate: Candidate, kind: str
) -> Iterator[tuple[tuple[tuple[int, str], ...], ...]]:
    layers = problem.model.layers
    parts = [part_of(layer.name, layer.kind) for layer in layers]
    yield ((),) * len(candidate.stages)
    for number in range(1, max(end - first for first, end in candidate.stages)) if kind == FULL else ():
        blocks = [[i for i in range(*stage) if parts[i] == BLOCK] for stage in candidate.stages]
        if all(layers[i].effects((kind,)) for stage in blocks for i in stage[:number]):
            yield tuple(tuple((i, kind) for i in stage[:number]) for stage in blocks)
    every = [[i for i in range(*stage) if parts[i] in (BLOCK, MTP)] for stage in candidate.stages]
    if all(layers[i].effects((kind,)) for stage in every for i in stage):
        yield tuple(tuple((i, kind) for i in stage) for stage in every)
