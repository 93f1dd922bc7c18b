"""The configurations of a search space: every placement with every number of devices and chunks."""

from __future__ import annotations

from .check_problem import placements_of
from .configuration import Configuration
from .problem import PlanningProblem
from .recompute_options import OptionSets


def configurations_of(problem: PlanningProblem) -> list[Configuration]:
    """Return the configurations of the search space.

    Raises
    ------
    InputError
        As in `placements_of`.
    """
    sets = OptionSets(problem)
    return [Configuration(problem, placement, sets) for placement in placements_of(problem)]
