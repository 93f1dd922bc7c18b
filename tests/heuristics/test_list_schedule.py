"""List scheduling: a valid schedule at every limit that has one, for every placement and rule."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.cases import instances, serial_order, uniform
from helpers.golden import GOLDEN, golden_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InfeasibleError, Instance, Memory, retime, validate
from tightpipe.heuristics.list_kernel import Rule
from tightpipe.heuristics.list_schedule import by_priority, list_order, list_problem, priority_rules, runs_of
from tightpipe.heuristics.list_state_kernel import Fusing
from tightpipe.model.metrics import bubble, cost, peak_memory
from tightpipe.model.schedule import Order
from tightpipe.params.solve_params import DEFAULTS


def order_by(instance: Instance, rule: Rule) -> Order:
    return next(runs_of(instance, list_problem(instance), [(by_priority(rule), Fusing(0.0, 1.0))])).order


def four_devices(placement: str, limit: int | None, objective: str = "device_span") -> Instance:
    memory = Memory(2, -1, -1, limit)
    return uniform(4, 8, (10, 12, 8), comm=1, placement=placement, memory=memory, objective=objective)


@settings(max_examples=150, deadline=None)
@given(instances(max_devices=4, max_microbatches=6))
def test_every_feasible_instance_gets_a_valid_schedule(problem: Instance) -> None:
    schedule = retime(problem, list_order(problem))
    assert validate(problem, schedule) == []


@settings(max_examples=150, deadline=None)
@given(instances(max_devices=4, max_microbatches=6), st.sampled_from(priority_rules(DEFAULTS.list)))
def test_no_rule_ever_deadlocks(problem: Instance, rule: Rule) -> None:
    schedule = retime(problem, order_by(problem, rule))
    assert validate(problem, schedule) == []


@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave", "bidirectional"])
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
def test_smallest_limit_is_met_and_overlaps_more_than_the_serial_order(
    placement: str, objective: str
) -> None:
    free = four_devices(placement, None)
    problem = four_devices(placement, max(free.smallest_limit(d) for d in range(4)), objective)
    schedule = retime(problem, list_order(problem))
    assert validate(problem, schedule) == []
    assert peak_memory(schedule).max() <= free.smallest_limit(0)
    assert cost(schedule) <= cost(retime(problem, serial_order(problem)))


def test_reaches_zero_bubble_with_much_memory() -> None:
    row = next(r for r in GOLDEN if (r["p"], r["n"], r["f"], r["m_offset"]) == (16, 48, 11347, 16))
    problem = golden_instance(row)
    assert row["max_bubble"] > 0
    assert bubble(retime(problem, list_order(problem))) == 0


def test_infeasible_limit_is_said() -> None:
    with pytest.raises(InfeasibleError, match="at least 4"):
        list_order(four_devices("v", 3))


TURN = {"devices": 1, "microbatches": 4, "forward": 2, "backward": 3, "weight": 1, "placement": "v"}
LINE = {"devices": 2, "microbatches": 3, "placement": "linear"}
SHORT = {**LINE, "forward": 4, "backward": 4, "weight": 4}
LONG = {**LINE, "forward": 6, "backward": 4, "weight": 4}
LATE = {**LINE, "forward": 4, "backward": 4, "weight": 8, "comm": 1, "microbatches": 2}
PLAIN = Rule(False, False, False, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("entries", "limit", "choice", "begin"),
    [
        # F0.1 and F1.0 are both ready
        (TURN, None, {"deepest_forward": False}, "F0.0 F0.1"),
        (TURN, None, {"deepest_forward": True}, "F0.0 F1.0"),
        # B0.0 and B1.1 are both ready
        ({**TURN, "microbatches": 2}, None, {"alternate": True}, "F0.0 F0.1 F1.0 B1.0 F1.1 B0.0"),
        (
            *({**TURN, "microbatches": 2}, None),
            *({"alternate": True, "deepest_backward": True}, "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1"),
        ),
        # at tick 20 an F fits and a B is ready
        (SHORT, 4, {"alternate": False}, "F0.0 F0.1 B0.0 W0.0 B0.1"),
        (SHORT, 4, {"alternate": True}, "F0.0 F0.1 B0.0 W0.0 F0.2"),
        # F0.1 leaves 2 of the 4 that F1.0 and F1.1 will take
        (TURN, 6, {"reserve": 0.5}, "F0.0 F0.1"),
        (TURN, 6, {"reserve": 0.6}, "F0.0 F1.0"),
        # 4 of the 8 ticks of W0.0 lie behind the arrival of B0.1
        (LATE, None, {"overrun": 0.4}, "F0.0 F0.1 B0.0 B0.1"),
        (LATE, None, {"overrun": 0.5}, "F0.0 F0.1 B0.0 W0.0"),
        # B0.1 arrives 2 ticks after F0.2 could start, which takes 6
        (LONG, 4, {"patience": 0.3}, "F0.0 F0.1 B0.0 W0.0 F0.2"),
        (LONG, 4, {"patience": 0.4}, "F0.0 F0.1 B0.0 W0.0 B0.1"),
    ],
)
def test_each_choice_of_a_rule_decides_what_comes_next(
    entries: dict[str, Any], limit: int | None, choice: dict[str, Any], begin: str
) -> None:
    problem = Instance.uniform(memory=Memory(2, -1, -1, limit), **entries)
    assert str(order_by(problem, PLAIN._replace(**choice))).startswith(begin)
