"""The greedy V-schedule: the 72 golden rows, its published transcription, unequal costs, low memory."""

from __future__ import annotations

import hashlib
import importlib.util
import random
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers.golden import GOLDEN, golden_instance
from helpers.small_instances import without_diagonal
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, NoScheduleError, Order, retime, validate
from tightpipe.heuristics.greedy_v import _problem, best_attempt, greedy_v_order
from tightpipe.heuristics.greedy_v_kernel import Policy, run_pass
from tightpipe.model.metrics import bubble, cost

ROOT = Path(__file__).parents[2]


def uniform(p: int, n: int, ticks: tuple[int, ...], deltas: tuple[Any, ...], limit: Any) -> Instance:
    f, b, w, c = ticks
    memory = Memory(*deltas, limit)
    return Instance.uniform(devices=p, microbatches=n, forward=f, backward=b, weight=w, comm=c, memory=memory)


@pytest.fixture(scope="module")
def seed() -> ModuleType:
    path = ROOT / "benchmarks" / "seed_greedy_v.py"
    spec = importlib.util.spec_from_file_location("seed_greedy_v", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.sampled(5)
@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: f"{r['p']}x{r['n']}-{r['f']}-{r['m_offset']}")
def test_golden_order_and_bubble(row: dict[str, Any]) -> None:
    problem = golden_instance(row)
    order = greedy_v_order(problem)
    assert hashlib.sha256(str(order).encode()).hexdigest() == row["order_sha256"]
    attempt = best_attempt(problem)
    assert attempt is not None
    assert attempt.bubble == row["max_bubble"]
    assert round(attempt.bubble / (row["work"] + attempt.bubble), 4) == row["bubble_rate"]


@pytest.mark.parametrize("row", [r for r in GOLDEN if r["n"] <= 48], ids=lambda r: f"{r['p']}x{r['n']}")
def test_exact_times_keep_or_shrink_the_bubble(row: dict[str, Any]) -> None:
    problem = golden_instance(row)
    schedule = retime(problem, greedy_v_order(problem))
    assert bubble(schedule) <= row["max_bubble"]
    assert validate(problem, schedule) == []


def test_golden_orders_in_full() -> None:
    for row in GOLDEN:
        if "order" in row:
            assert str(greedy_v_order(golden_instance(row))).splitlines() == row["order"]


@pytest.mark.source_tree
def test_decides_as_the_published_code_does(seed: ModuleType) -> None:
    rng = random.Random(0)
    for _ in range(300):
        p, n = rng.randint(2, 6), rng.randint(1, 10)
        f, b, w, c = (rng.randint(1, 9) for _ in range(4))
        freed = rng.randint(0, 4)
        deltas, limit = (4, -freed, freed - 4), 4 * rng.choice([2 * p, 3 * p, 99]) + rng.randint(0, 4)
        published, lost = seed.SeedGreedyV(p, n, f, b, w, c, *deltas, limit).get_v_schedule()
        problem = uniform(p, n, (f, b, w, c), deltas, limit)
        assert greedy_v_order(problem) == Order.from_lists(published)
        attempt = best_attempt(problem)
        assert attempt is not None
        assert attempt.bubble == lost


@st.composite
def unequal(draw: st.DrawFn) -> Instance:
    """Different costs and deltas per stage, communication per pair, limits per device or none."""
    p, n = draw(st.integers(1, 4)), draw(st.integers(1, 6))

    def per(count: int, low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    backward, weight = per(2 * p, -3, 0), per(2 * p, -3, 0)
    forward = [-b - w for b, w in zip(backward, weight, strict=True)]
    extra = draw(st.none() | st.integers(0, 30))
    limit = None if extra is None else [forward[d] + forward[2 * p - 1 - d] + extra for d in range(p)]
    return Instance.uniform(
        devices=p,
        microbatches=n,
        forward=per(2 * p, 1, 9),
        backward=per(2 * p, 1, 9),
        weight=per(2 * p, 1, 9),
        comm=without_diagonal([per(p, 0, 5) for _ in range(p)]),
        memory=draw(st.sampled_from([None, Memory(forward, backward, weight, limit)])),
        objective=draw(st.sampled_from(["device_span", "makespan"])),
    )


def order_or_reason(problem: Instance) -> tuple[Order | None, str]:
    try:
        return greedy_v_order(problem), ""
    except NoScheduleError as error:
        return None, str(error)


@settings(max_examples=200, deadline=None)
@given(unequal())
def test_any_instance_gives_a_valid_schedule_or_a_clear_error(problem: Instance) -> None:
    order, reason = order_or_reason(problem)
    if order is None:
        assert problem.memory_limit(0) is not None
        assert re.search(r"it has one at \[?\d+", reason)
        return
    schedule = retime(problem, order)
    assert validate(problem, schedule) == []
    attempt = best_attempt(problem)
    assert attempt is not None
    if problem.objective == "makespan":
        assert cost(schedule) == attempt.end
    else:
        assert bubble(schedule) <= attempt.bubble


def test_other_placements_are_refused() -> None:
    with pytest.raises(InputError, match="placement"):
        greedy_v_order(
            Instance.uniform(devices=2, microbatches=2, forward=1, backward=1, weight=1, placement="loop")
        )


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_microbatches_and_one_device(p: int, n: int) -> None:
    for limit in (2 * 4 * p, None):
        problem = uniform(p, n, (6, 4, 4, 1), (4, -2, -2), limit)
        assert validate(problem, retime(problem, greedy_v_order(problem))) == []


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 4), st.integers(0, 30), st.data())
def test_uniform_instances_have_one_at_every_feasible_limit(
    p: int, n: int, freed: int, extra: int, data: st.DataObject
) -> None:
    ticks = tuple(data.draw(st.integers(1, 9)) for _ in range(4))
    problem = uniform(p, n, ticks, (4, -freed, freed - 4), 8 + extra)
    assert validate(problem, retime(problem, greedy_v_order(problem))) == []


def test_error_names_a_limit_that_is_enough() -> None:
    forward = (2, 4, 4, 3)
    deltas = (forward, [-(x // 2) for x in forward], [x // 2 - x for x in forward])
    reason = order_or_reason(uniform(2, 5, (5, 5, 4, 1), deltas, 8))[1]
    said = "greedy-v has no schedule at the memory limit 8; it has one at "
    assert reason.startswith(said)
    enough = int(reason.removeprefix(said))
    assert order_or_reason(uniform(2, 5, (5, 5, 4, 1), deltas, enough))[0]
    assert order_or_reason(uniform(2, 5, (5, 5, 4, 1), deltas, enough - 1))[0] is None


def test_error_names_limits_per_device() -> None:
    deltas = ((2, 4, 5, 4), (-1, -2, -2, -2), (-1, -2, -3, -2))
    reason = order_or_reason(uniform(2, 7, (5, 5, 4, 1), deltas, (6, 9)))[1]
    assert "at the memory limit [6, 9] (per device); it has one at [9, 13] (per device)" in reason


def test_more_memory_and_no_limit_do_not_cost_more() -> None:
    limits = [64, 80, 96, None]
    problems = [uniform(8, 24, (10, 10, 8, 1), (4, -2, -2), limit) for limit in limits]
    costs = [cost(retime(p, greedy_v_order(p))) for p in problems]
    assert all(later <= earlier for earlier, later in pairwise(costs))


def one_pass(ticks: tuple[int, ...], n: int, limits: list[int], policy: Policy, spare: int = 0) -> list[str]:
    """The sequence of each device after one pass, nothing where the pass fails."""
    problem = uniform(len(limits), n, ticks, (2, -1, -1), limits)
    stages, devices, _ = _problem(problem, np.array(limits))
    devices["spare"] = spare
    works, order = run_pass(stages, devices, n, policy)
    return str(Order(order, np.arange(len(limits) + 1) * order.shape[1])).splitlines() if works else []


EAGER = Policy(True, True)


def test_a_pass_runs_a_pending_w_where_an_f_would_not_fit() -> None:
    expected = "F0.0 F1.0 B1.0 W1.0 F0.1 B0.0 W0.0 F1.1 B1.1 B0.1 W1.1 W0.1"
    assert one_pass((2, 3, 1, 0), 2, [4], EAGER) == [expected]


def test_a_pass_fails_where_one_microbatch_does_not_fit() -> None:
    assert one_pass((2, 3, 1, 0), 2, [3], EAGER) == []


@pytest.mark.parametrize(
    ("policy", "spare", "filled"),
    [(EAGER, 0, True), (EAGER, 3, True), (EAGER, 4, False), (Policy(False, True), 0, False)],
)
def test_a_w_delays_an_f_if_the_policy_allows_it_and_idling_costs_time(
    policy: Policy, spare: int, filled: bool
) -> None:
    """Device 0 has idled for 3 ticks until F3.0. F3.1 arrives 1 tick after B3.0, and the W takes 2."""
    first, _ = one_pass((3, 2, 2, 0), 2, [8, 8], policy, spare)
    assert first.startswith(f"F0.0 F0.1 F3.0 B3.0 {'W3.0 ' if filled else ''}F3.1")


@pytest.mark.parametrize(("policy", "filled"), [(EAGER, "W2.0 "), (Policy(True, False), "")])
def test_a_w_delays_a_b_of_the_upper_stage_only_if_the_policy_allows_it(policy: Policy, filled: str) -> None:
    """Device 1 has never idled when B2.2 arrives 1 tick after the end of B1.1; the W takes 3."""
    _, last = one_pass((2, 2, 3, 0), 3, [99, 99], policy)
    assert f"B2.1 B1.1 {filled}B2.2" in last
