"""The partition of a plan's model, in the form in which it is exported to frameworks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tightpipe.heuristics.interleaved import group_sizes, interleaved_order

from ..core.absent import order_of
from ..core.errors import InputError, NoScheduleError
from ..core.instance import Objective
from ..core.metrics import cost
from ..core.retime import retime
from ..export import ModelSplit, split_model
from .candidate import instance_of
from .layered_model import Layer
from .plan import Plan
from .runtimes import megatron_schedule


def split_of(plan: Plan) -> ModelSplit:
    """Return which parts of the model each stage of a plan has, and which are recomputed.

    Equal layers of a stage are interchangeable, so the first of them are named as the recomputed ones.

    Raises
    ------
    NoScheduleError
        If there is no plan; the message says why.
    InputError
        If stages run on two devices each, or the layers are not those of a model that frameworks know, by
        their kinds or names.
    """
    if plan.candidate is None:
        raise NoScheduleError(f"{plan.status}: {plan.reason}")
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
    return replace(split, group=_group_of(plan))


def _group_of(plan: Plan) -> int | None:
    """Return the microbatches of a group if a plan's schedule is interleaved 1F1B; None otherwise."""
    if plan.schedule is None or plan.method != "interleaved-1f1b":
        return None
    p, n = plan.schedule.instance.devices, plan.schedule.instance.microbatches
    free = replace(plan.schedule.instance, memory=None)
    for size in group_sizes(p, n):
        if order_of(free, partial(interleaved_order, group=size)) == plan.schedule.order:
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
        return cost(megatron_schedule(instance, split.group))
    return cost(retime(instance, plan.schedule.order))


def _first_equal(layers: Sequence[Layer], stage: range, recomputed: tuple[int, ...]) -> list[int]:
    """Return a stage's first layers that equal recomputed ones, as many of each kind as are recomputed."""
    left = Counter(layers[index] for index in recomputed)
    chosen = []
    for index in stage:
        if left[layers[index]]:
            left[layers[index]] -= 1
            chosen.append(index)
    return chosen
