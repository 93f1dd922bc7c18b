"""The partition of a plan's model, in the form in which it is exported to frameworks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..core.errors import InputError, NoScheduleError
from ..export import ModelSplit, split_model
from .layered_model import Layer
from .plan import Plan


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
    return split_model(
        [layer.name for layer in layers],
        candidate.cuts,
        recomputed,
        candidate.placement.routes[0],
        microbatches=plan.problem.batch.microbatches,
        kinds=[layer.kind for layer in layers],
    )


def _first_equal(layers: Sequence[Layer], stage: range, recomputed: tuple[int, ...]) -> list[int]:
    """Return a stage's first layers that equal recomputed ones, as many of each kind as are recomputed."""
    left = Counter(layers[index] for index in recomputed)
    chosen = []
    for index in stage:
        if left[layers[index]]:
            left[layers[index]] -= 1
            chosen.append(index)
    return chosen
