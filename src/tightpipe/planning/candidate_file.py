"""A candidate as plain data, the form in which plan files and ``tightpipe plan --json`` have it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ..core.errors import InputError
from ..core.integers import check_int
from ..core.placement import Placement
from .candidate import Candidate
from .problem import PlanningProblem

CANDIDATE_KEYS = ("placement", "devices", "chunks", "stages", "recomputed", "recomputed_layers")
"""The keys of a candidate; `recomputed` has the number of recomputed layers of each stage."""


def candidate_to_dict(candidate: Candidate | None) -> dict[str, Any]:
    """Return a candidate as plain data; without a candidate, every key has None."""
    if candidate is None:
        return dict.fromkeys(CANDIDATE_KEYS)
    values = (
        candidate.placement.name,
        candidate.placement.devices,
        candidate.placement.stages_per_device,
        [list(stage) for stage in candidate.stages],
        [len(stage) for stage in candidate.recomputed],
        [list(stage) for stage in candidate.recomputed],
    )
    return dict(zip(CANDIDATE_KEYS, values, strict=True))


def candidate_from_dict(data: dict[str, Any], problem: PlanningProblem) -> Candidate:
    """Return the candidate of a problem that plain data describes.

    The key `recomputed_layers` gives the recomputed layers; `recomputed`, their number, is not read.

    Raises
    ------
    InputError
        If the number of stages is not the placement's, if the stages do not have all layers of the problem
        one after another, or if a stage recomputes a layer that it does not have.
    """
    placement = Placement(data["placement"], data["devices"], data["chunks"])
    cuts = _cuts(data, placement.stages, len(problem.model.layers))
    return Candidate(placement, cuts, _recomputed(data, cuts))


def check_candidate(problem: PlanningProblem, candidate: Candidate) -> None:
    """Raise an error unless a candidate is in the search space of the problem.

    The bound of a plan holds for all candidates in the search space, and need not hold for others.

    Raises
    ------
    InputError
        If the problem does not allow this placement, number of devices or number of chunks, or does not allow
        a layer to be recomputed.
    """
    space, placement = problem.space, candidate.placement
    _check_choice("placement", placement.name, space.placements)
    _check_choice("devices", placement.devices, problem.cluster.devices)
    usual = Placement(placement.name, placement.devices).stages_per_device
    _check_choice("chunks", placement.stages_per_device, space.chunks or (usual,))
    for s, again in enumerate(candidate.recomputed):
        for index in again:
            if not space.recompute or problem.model.layers[index].input is None:
                rule = "the problem does not let this layer be recomputed"
                raise InputError(rule, key=f"recomputed_layers[{s}]", value=index)


def _check_choice(key: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        rule = f"must be one of {', '.join(map(str, choices))}, as the problem has it"
        raise InputError(rule, key=key, value=value)


def entries(data: dict[str, Any], key: str) -> list[Any]:
    """Return the list that is the value of a key, or raise an InputError if the value is no list."""
    if not isinstance(data[key], list):
        raise InputError("must be a list", key=key, value=data[key])
    return list(data[key])


def _cuts(data: dict[str, Any], stages: int, layers: int) -> tuple[int, ...]:
    """Return the cuts: the first layer of each stage, and then the number of layers."""
    given = entries(data, "stages")
    ends = [_integers(f"stages[{s}]", stage, layers)[-1:] for s, stage in enumerate(given)]
    cuts = (0, *(end for last in ends for end in last))
    whole = [list(stage) for stage in pairwise(cuts)] == given and cuts[-1] == layers
    if not whole or len(given) != stages or any(first >= end for first, end in pairwise(cuts)):
        rule = f"must be [first, end] for {stages} stages of one layer or more, from layer 0 on to {layers}"
        raise InputError(rule, key="stages", value=given)
    return cuts


def _recomputed(data: dict[str, Any], cuts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    given = entries(data, "recomputed_layers")
    if len(given) != len(cuts) - 1:
        rule = f"must have one list per stage: {len(cuts) - 1}"
        raise InputError(rule, key="recomputed_layers", value=given)
    return tuple(
        _again(f"recomputed_layers[{s}]", given[s], *stage) for s, stage in enumerate(pairwise(cuts))
    )


def _again(key: str, value: Any, first: int, end: int) -> tuple[int, ...]:
    """Return the recomputed layers of a stage, after checking that they are among `first` to `end - 1`."""
    layers = _integers(key, value, end - 1)
    if layers != sorted(set(layers)) or (layers and layers[0] < first):
        raise InputError(f"must be layers from {first} to {end - 1}, ascending", key=key, value=layers)
    return tuple(layers)


def _integers(key: str, value: Any, high: int) -> list[int]:
    if not isinstance(value, list):
        raise InputError("must be a list of integers", key=key, value=value)
    return [check_int(f"{key}[{i}]", item, 0, high) for i, item in enumerate(value)]
