"""Each constraint family of the mixed-integer model is needed: for its solutions, or for its relaxation."""

from __future__ import annotations

from collections.abc import Iterable

import pulp
import pytest
from helpers.constraint_families import (
    ALONE,
    IN_PAIRS,
    POOLED,
    THREE,
    TWO,
    WIDE,
    Case,
    Known,
    families_of,
    horizon_of,
    left_out,
    open_windows,
)

from tightpipe import Instance, retime, validate
from tightpipe.model.graph import graph_of
from tightpipe.model.metrics import cost
from tightpipe.solver.milp.model import Constraints, MilpModel
from tightpipe.solver.queues import is_modelled, queues_of
from tightpipe.solver.windows import windows_of_edges

NEEDED = {
    "sequence": Case(THREE),
    "precedence": Case(TWO),
    "order_in_time": Case(TWO),
    "weight_after_backward": Case(POOLED),
    "memory": Case(ALONE),
    "fused": Case(WIDE["fused"]),
    "paired": Case(WIDE["paired"]),
}
"""Without these the model has solutions that are no schedules."""
STRONGER = {"windows": Case(THREE, ("work",)), "lattice": Case(IN_PAIRS), "work": Case(TWO)}
"""These follow from the others for integers; the linear relaxation without them is weaker."""


def solved(instance: Instance, without: Iterable[str] = (), *, integers: bool = True) -> MilpModel:
    narrow = is_modelled(instance)
    queues = queues_of(instance, pooled=not graph_of(instance).joint)
    windows = open_windows(queues) if narrow else windows_of_edges(queues, horizon_of(instance))
    with left_out(Constraints, without):
        model = MilpModel(queues, windows, 0)
    cbc = pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, mip=integers)
    assert model.problem.solve(cbc) == pulp.LpStatusOptimal
    return model


def least(instance: Instance, without: Iterable[str], *, integers: bool) -> float:
    return float(pulp.value(solved(instance, without, integers=integers).problem.objective))


def test_every_family_has_a_case() -> None:
    assert set(NEEDED) | set(STRONGER) == families_of(Constraints)


@pytest.mark.parametrize(
    "known", [TWO, THREE, ALONE, IN_PAIRS, POOLED, *WIDE.values()], ids=lambda known: str(known.optimum)
)
def test_all_families_together_give_a_cheapest_schedule(known: Known) -> None:
    model = solved(known.instance)
    schedule = retime(known.instance, model.order(pulp.value))
    assert validate(known.instance, schedule) == []
    assert cost(schedule) == round(pulp.value(model.problem.objective)) == known.optimum


@pytest.mark.parametrize("family", NEEDED)
def test_without_a_family_costs_seem_possible_that_are_not(family: str) -> None:
    known = NEEDED[family].known
    assert least(known.instance, [family], integers=True) < known.optimum - 0.5


@pytest.mark.parametrize("family", STRONGER)
def test_without_a_family_the_relaxation_is_weaker(family: str) -> None:
    case = STRONGER[family]
    with_it = least(case.known.instance, case.beside, integers=False)
    without = least(case.known.instance, (*case.beside, family), integers=False)
    assert without + 0.1 < with_it < case.known.optimum + 1e-6
