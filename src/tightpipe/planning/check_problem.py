"""What the parts of a planning problem have to keep together, before a search begins."""

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

    Whether anything fits the memory is not asked here: that is an answer.

    Raises
    ------
    InputError
        If a bandwidth has no bytes to count, a number of chunks suits no placement, the model has fewer
        layers than any placement has stages, or a placement cannot take the microbatches.
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
    """Return into how many stages a model can be cut at most, if F, B and W of each take a tick or more.

    A stage that ends as early as it can leaves the most layers for the others. Where layers may be
    recomputed, the B of a layer may take the time of its F as well.
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
    for index, layer in enumerate(problem.model.layers[:-1]):  # the last one sends nothing
        if layer.output is None:
            rule = f"needs the output bytes of each layer but the last; layer {index} ({layer.name}) has none"
            raise InputError(rule, key="cluster.bandwidth", value=decimal(problem.cluster.comm.bandwidth))


def _placements(problem: PlanningProblem) -> list[Placement]:
    """Return the placements of the search space, without numbers of chunks or devices that they refuse."""
    found = []
    for name in problem.space.placements:
        for devices in problem.cluster.devices:
            for chunks in problem.space.chunks or (None,):
                try:
                    found.append(Placement(name, devices, chunks))
                except InputError:
                    continue  # e.g. v has two chunks, whatever the others have
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
    """Raise the error of an instance of this size, if there is one, under the key of a model file."""
    try:
        check_size(placement, microbatches)
    except InputError as error:
        raise InputError(error.rule, key=f"batch.{error.key}", value=error.value) from None
