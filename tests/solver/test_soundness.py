"""No bound is above the optimum, on thousands of small instances of all kinds with proven optima.

`benchmarks/small_optima.py` wrote the optima. Bounds by search are asked on every so many lines, each time with
another cost as the known one: the optimum itself, or somewhat more.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from helpers.small_instances import Known, digest, known_optima, small_instance

from tightpipe import Instance
from tightpipe.model.placement import PLACEMENTS
from tightpipe.model.result import Bound
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.solver.bounds.destructive import energetic_bound, shaving_bound
from tightpipe.solver.bounds.formulas import all_bounds
from tightpipe.solver.cpsat.targets import refutation_bound
from tightpipe.solver.queues import queues_of
from tightpipe.solver.windows import shaved_windows

Search = Callable[[Instance, int, Budget], Bound]


KNOWN = known_optima()


def known_cost(line: Known) -> int:
    """The optimum, or up to 10 ticks more, by the seed."""
    return line.optimum + line.seed % 11


def test_the_generator_has_not_changed() -> None:
    changed = [line.seed for line in KNOWN if digest(small_instance(line.seed)) != line.digest]
    assert not changed, "run benchmarks/small_optima.py on an empty file"


def test_the_instances_are_of_all_kinds() -> None:
    kinds = Counter(
        (instance.placement.name, str(instance.objective), instance.costs.link_occupancy > 0)
        for instance in (small_instance(line.seed) for line in KNOWN)
    )
    assert len(kinds) == len(PLACEMENTS) * 2 * 2
    assert min(kinds.values()) >= 10
    assert sum(line.proof != "lattice" for line in KNOWN) > 0.9 * len(KNOWN)


def test_no_formula_is_above_the_optimum() -> None:
    for line in KNOWN[::2]:
        for bound in all_bounds(small_instance(line.seed)):
            assert bound.value <= line.optimum, (line, bound)


def test_windows_from_wider_ones_hold_the_optimum() -> None:
    for line in KNOWN[3::24]:
        queues = queues_of(small_instance(line.seed))
        wider = shaved_windows(queues, line.optimum + 1 + line.seed % 11, UNLIMITED.within(5))
        windows = shaved_windows(queues, line.optimum, UNLIMITED.within(5), wider=wider)
        assert wider.feasible, line
        assert windows.feasible, line


@pytest.mark.parametrize(
    ("search", "every"),
    [(energetic_bound, 6), (shaving_bound, 24), (refutation_bound, 100)],
    ids=["energetic", "shaving", "refutation"],
)
def test_no_search_is_above_the_optimum(search: Search, every: int, from_work: None) -> None:
    for line in KNOWN[every // 2 :: every]:
        bound = search(small_instance(line.seed), known_cost(line), UNLIMITED.within(20))
        assert bound.value <= line.optimum, (line, bound)
