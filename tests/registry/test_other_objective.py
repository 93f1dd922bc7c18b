"""A schedule that was found for one objective is a start for the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.cases import uniform

from tightpipe import Memory, Schedule, retime, solve
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import cost


@pytest.mark.parametrize("method", ["improve", "best"])
def test_the_span_never_exceeds_the_makespan_of_the_start(method: str) -> None:
    spans = uniform(4, 8, (10, 20, 5), comm=4, placement="v", memory=Memory(2, -1, -1, 12))
    together = replace(spans, objective=Objective.MAKESPAN)
    found = solve(together, method, effort=0.5, workers=1).schedule
    assert isinstance(found, Schedule)
    result = solve(spans, method, effort=0.05, workers=1, warm_start=found)
    assert isinstance(result.schedule, Schedule)
    assert result.schedule.instance == spans
    assert cost(result.schedule) <= cost(retime(spans, found.order)) <= cost(found)
