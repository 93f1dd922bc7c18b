"""The configurations of a search space: every placement with every number of devices and chunks."""

from __future__ import annotations

from ..core.errors import InputError
from ..core.placement import Placement, Route
from .configuration import Configuration
from .problem import PlanningProblem
from .recompute_options import OptionSets


def configurations_of(problem: PlanningProblem) -> list[Configuration]:
    """Return the configurations of the search space.

    Raises
    ------
    InputError
        If there is none, if every placement has more stages than the model has layers, or if a placement has
        two routes, for which this search cannot cut a model.
    """
    sets = OptionSets(problem)
    return [Configuration(problem, placement, sets) for placement in _placements(problem)]


def _placements(problem: PlanningProblem) -> list[Placement]:
    """Return the placements of the search space; of several with equal routes, only the first one."""
    space, found = problem.space, dict[tuple[Route, ...], Placement]()
    refused = ""
    for name in space.placements:
        if name == "bidirectional":
            rule = "must not hold bidirectional: its devices have the stages of two routes"
            raise InputError(rule, key="search.placements", value=list(space.placements))
        for devices in problem.cluster.devices:
            for chunks in space.chunks or (None,):
                try:
                    placement = Placement(name, devices, chunks)
                except InputError as error:
                    refused = error.rule
                else:
                    found.setdefault(placement.routes, placement)
    if not found:
        raise InputError(f"allows no placement: {refused}", key="search.chunks", value=space.chunks)
    fewest, layers = min(placement.stages for placement in found.values()), len(problem.model.layers)
    if fewest > layers:
        rule = f"must be at least {fewest} layers, one for each stage of the smallest placement"
        raise InputError(rule, key="layers", value=layers)
    return list(found.values())
