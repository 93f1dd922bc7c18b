"""Searches for bounds are asked about instances with every rule, and none is above the optimum.

The optimum comes from a model of its own, which has start times and nothing else.
"""

from __future__ import annotations

from functools import cache

import pytest
from helpers.cases import cases_of_every_rule
from helpers.independent_model import optimal_schedule

from tightpipe import Schedule
from tightpipe.model.metrics import cost
from tightpipe.model.result import ignore
from tightpipe.params.budget import UNLIMITED
from tightpipe.solver.best import bound_searches, raise_bounds
from tightpipe.solver.bounds.formulas import all_bounds, best_bound
from tightpipe.solver.bounds.relaxed import KNOWN, without_copies
from tightpipe.solver.queues import Rule, rules_of

CASES = cases_of_every_rule(range(700, 760))


@cache
def optimum(number: int) -> Schedule:
    return optimal_schedule(CASES[number])


def test_the_cases_are_of_every_rule() -> None:
    for rule in KNOWN:
        assert sum(rule in rules_of(case) for case in CASES) >= 5, rule


@pytest.mark.sampled(8)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_no_search_is_above_the_optimum(number: int) -> None:
    least = cost(optimum(number))
    for search, _ in bound_searches():
        for above in (0, number % 7):
            found = search(without_copies(CASES[number]), least + above, UNLIMITED.within(10), 0, ignore)
            assert found.value <= least, (search.__name__, above)


@pytest.mark.parametrize("rule", sorted(KNOWN))
def test_searches_close_the_gap_that_formulas_leave(rule: Rule) -> None:
    """Of the first instances with the rule on which no formula reaches the optimum."""
    numbers = (number for number, case in enumerate(CASES) if rule in rules_of(case))
    left_open = (n for n in numbers if best_bound(CASES[n]).value < cost(optimum(n)))
    for number in (next(left_open), next(left_open)):
        found = all_bounds(CASES[number])
        raise_bounds(optimum(number), UNLIMITED.within(20), found, ignore)
        assert max(bound.value for bound in found) == cost(optimum(number))
