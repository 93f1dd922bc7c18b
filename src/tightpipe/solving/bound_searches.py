"""The searches for lower bounds, in the sequence in which they run.

Each search refutes one cost after another: it proves that no schedule has this cost or a lower one.
"""

from __future__ import annotations

from collections.abc import Callable

from ..core.budget import Budget
from ..core.instance import Instance
from ..core.params.proof import BoundParams
from ..core.params.solve_params import DEFAULTS
from ..core.progress import Progress
from ..core.result import Bound

SEARCH_LOOPS = ("energetic bound", "shaving", "prefixes")
"""Groups of compiled loops that the searches call, as `tightpipe.exercise` names them."""

BoundSearch = Callable[[Instance, int, Budget, int, Progress], Bound]


def bound_searches(params: BoundParams = DEFAULTS.bounds) -> tuple[tuple[BoundSearch, float], ...]:
    """Return the searches in sequence, each with its share, 0 to 1, of the time left when it begins.

    A search takes an instance, the cost of a known schedule in ticks, a budget, the best bound so far in
    ticks, and a function to call with each better bound. The search returns the best bound that it proves.
    """
    from tightpipe.solver.bounds.searches.energetic import energetic_bound
    from tightpipe.solver.bounds.searches.fluid import fluid_bound
    from tightpipe.solver.bounds.searches.prefixes import prefix_bound
    from tightpipe.solver.bounds.searches.shaving import shaving_bound
    from tightpipe.solver.cpsat.refutation import refutation_bound

    return (
        (energetic_bound, params.energetic),
        (shaving_bound, params.shaving),
        (prefix_bound, params.prefixes),
        (fluid_bound, params.fluid),
        (refutation_bound, params.refutation),
    )
