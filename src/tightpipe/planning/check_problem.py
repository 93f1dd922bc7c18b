"""Checks that the parts of a planning problem agree with each other, before a search begins."""

from __future__ import annotations

from ..core.errors import InputError
from ..core.instance import check_size
from ..core.placement import Placement
from .cluster import Network
from .layered_model import Model
from .problem import PlanningProblem
from .units import decimal


def check_problem(problem: PlanningProblem) -> None:
    """Raise an error if a problem's parts contradict each other, or if its search space is empty.

    Whether a plan fits the memory is not checked here, because "no plan fits" is a valid result of the
    search.

    Raises
    ------
    InputError
        If the cluster gives a bandwidth but a layer lacks its output bytes, if no placement allows one of the
        numbers of chunks, if no placement runs on the devices, if every placement has more stages than the
        model can be cut into, or if a placement cannot take the microbatches.
    """
    _check_outputs(problem)
    allowed = _placements(problem)
    _check_chunks(problem, allowed)
    most = most_stages(problem.model, problem.space.recompute)
    possible = [placement for placement in allowed if placement.stages <= most]
    if not possible:
        _say_too_few(problem, allowed, most)
    for placement in possible:
        _check_microbatches(placement, problem.batch.microbatches)


def most_stages(model: Model, recompute: bool) -> int:
    """Return the most stages into which a model can be cut if F, B and W of each take at least one tick.

    A stage that ends as early as it can leaves the most layers for the others. If a layer may be recomputed,
    its B can take longer by the time of its F.
    """
    stages, sums = 0, (0, 0, 0)
    for layer in model.layers:
        forward, backward, weight = sums
        again = layer.forward if recompute and layer.recomputable else 0
        sums = (forward + layer.forward, backward + layer.backward + again, weight + layer.weight)
        if min(sums) > 0:
            stages, sums = stages + 1, (0, 0, 0)
    return stages


def _check_outputs(problem: PlanningProblem) -> None:
    if not isinstance(problem.cluster.comm, Network):
        return
    for index, layer in enumerate(problem.model.layers[:-1]):  # the last layer sends nothing
        if layer.output is None:
            rule = f"needs the output bytes of each layer but the last; layer {index} ({layer.name}) has none"
            raise InputError(rule, key="cluster.bandwidth", value=decimal(problem.cluster.comm.bandwidth))


def _placements(problem: PlanningProblem) -> list[Placement]:
    """Return each placement of the search space with the numbers of devices and chunks that it allows."""
    found = []
    for name in problem.space.placements:
        for devices in problem.cluster.devices:
            for chunks in problem.space.chunks or (None,):
                try:
                    found.append(Placement(name, devices, chunks))
                except InputError:
                    continue  # e.g. v always has two chunks
    return found


def _check_chunks(problem: PlanningProblem, allowed: list[Placement]) -> None:
    names = ", ".join(problem.space.placements)
    for chunks in problem.space.chunks or ():
        if all(placement.chunks != chunks for placement in allowed):
            raise InputError(f"no placement of {names} allows so many", key="search.chunks", value=chunks)
    if not allowed:
        rule = f"none of them runs on {' or '.join(map(str, problem.cluster.devices))} devices"
        raise InputError(rule, key="search.placements", value=list(problem.space.placements))


def _say_too_few(problem: PlanningProblem, allowed: list[Placement], most: int) -> None:
    least = min(allowed, key=lambda placement: placement.stages)
    rule = (
        f"can be cut into {most} stages at most (F, B and W of a stage take at least 1 tick each), "
        f"{least.name} on {least.devices} devices has {least.stages}"
    )
    raise InputError(rule, key="layers", value=len(problem.model.layers))


def _check_microbatches(placement: Placement, microbatches: int) -> None:
    """Raise an `InputError`, with the key of a model file, if a placement cannot take the microbatches."""
    try:
        check_size(placement, microbatches)
    except InputError as error:
        raise InputError(error.rule, key=f"batch.{error.key}", value=error.value) from None
