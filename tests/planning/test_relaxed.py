"""A relaxed candidate is the one, among all below a cap, whose devices are furthest from their limits."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers.random_models import cases, configuration, taken
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tightpipe import Placement
from tightpipe.planning import Batch, Candidate, Cluster, Layer, Model, PlanningProblem
from tightpipe.planning.candidates_by_table import kind_of
from tightpipe.planning.configuration import Configuration
from tightpipe.planning.device_bound_kernel import NEVER, device_bound, memory_time, taken_apart
from tightpipe.planning.layered_model import Recomputed
from tightpipe.planning.model_arrays import NO_LIMIT
from tightpipe.planning.partitions import partitions_of, relaxed_candidate


class Judged:
    """The bound and the load of each candidate of a configuration, one after another and not by a table."""

    def __init__(self, asked: Configuration, cap: int, held: float) -> None:
        self.asked, self.cap, self.held = asked, cap, held
        self.tables, self.options = asked.arrays()

    def _option(self, first: int, end: int, layers: Recomputed) -> int:
        begin, stop = self.options.first[first * (self.asked.layers + 1) + end :][:2]
        return next(k for k in range(begin, stop) if self.options.of([k]) == (layers,))

    def device(self, candidate: Candidate, device: int) -> tuple[int, float]:
        stages = candidate.placement.stages_on(device)
        cuts = [candidate.stages[s] for s in stages]
        option = [self._option(*candidate.stages[s], candidate.recomputed[s]) for s in stages]
        begin, end = ([cut[side] for cut in cuts] for side in (0, 1))
        stage = [np.array(column, np.int64) for column in (stages, begin, end, option)]
        bound = device_bound(self.tables, device, *stage, np.zeros(16, np.int64), 0)
        room = self.tables.room[device]
        work = sum(self.asked.ticks[k] for cut in cuts for k in range(*cut))
        work += sum(self.asked.problem.model.effect(candidate.recomputed[s]).extra for s in stages)
        loaded = (work * self.tables.microbatches / self.cap) ** 8
        if room < NO_LIMIT:
            room -= taken_apart(self.tables, *stage[1:])
            loaded += (self.held * memory_time(self.tables, device, *stage, room, 0) / self.cap) ** 8
        return bound, loaded

    def bound(self, candidate: Candidate) -> int:
        return max(self.device(candidate, d)[0] for d in range(candidate.placement.devices))

    def load(self, candidate: Candidate) -> float:
        mean = sum(self.asked.ticks) / candidate.placement.stages
        percents = [int(100 * sum(self.asked.ticks[a:b]) / mean) for a, b in pairwise(candidate.cuts)]
        devices = range(candidate.placement.devices)
        return sum(self.device(candidate, d)[1] for d in devices) + 5e-6 * sum(k * k for k in percents)


@given(cases(), st.sampled_from((1.0, 1.1, 1.5, 3.0)), st.sampled_from((1.0, 1.5)))
@settings(max_examples=60)
def test_no_candidate_below_the_cap_is_less_strained(
    case: tuple[PlanningProblem, Placement], slack: float, held: float
) -> None:
    problem, placement = case
    asked = configuration(problem, placement)
    assume(
        placement.name != "loop" or placement.devices > 1
    )  # else only some starts of its second half are tried
    least = partitions_of(asked).bound
    assume(least < NEVER)
    cap = int(slack * least) + 1
    found = relaxed_candidate(asked, cap, held)
    if kind_of(asked) is None:
        assert found is None
        return
    judged = Judged(asked, cap, held)
    below = [judged.load(c) for _, c in taken(problem, placement) if judged.bound(c) < cap]
    assert (found is None) == (not below)
    if found is not None:
        assert judged.bound(found) < cap
        assert judged.load(found) == pytest.approx(min(below), rel=1e-9)


def test_no_candidate_is_below_the_least_bound() -> None:
    problem = PlanningProblem(Model((Layer("a", 2, 2, 1, activation=1),) * 6), Cluster((2,), 9), Batch(3))
    for name in ("linear", "v", "loop"):
        asked = configuration(problem, Placement(name, 2))
        assert relaxed_candidate(asked, partitions_of(asked).bound, 1.0) is None
        assert relaxed_candidate(asked, partitions_of(asked).bound + 1, 1.0) is not None


def test_layers_go_where_memory_is_free() -> None:
    """Both cuts of the line have the same bound; device 0 holds activations longer, so it gets fewer layers."""
    layer = Layer("layer", 10, 10, 10, activation=4, weight_activation=2)
    problem = PlanningProblem(Model((layer,) * 5), Cluster((2,), 40), Batch(16))
    asked = configuration(problem, Placement("linear", 2))
    found = relaxed_candidate(asked, 2 * partitions_of(asked).bound, 1.5)
    assert found is not None
    assert found.cuts == (0, 2, 5)
