"""The bound over the number of splits: its closed form, and that no schedule costs less."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from helpers.cases import uniform
from helpers.independent_model import optimal_schedule

from tightpipe import Instance, Memory, Operation, OpKind, Order, retime, solve, validate
from tightpipe.model.costs import Step
from tightpipe.model.metrics import cost
from tightpipe.solver.bounds.formulas import BOUNDS, best_bound, splits_bound
from tightpipe.solver.bounds.formulas.ends import _least_cost

COSTS = (100, 110, 90)


def v_placement(devices: int, microbatches: int, fused: int, **entries: object) -> Instance:
    memory = Memory(2, -1, -1, 4 * devices)
    given = {"comm": 5, "placement": "v", "objective": "makespan", "memory": memory, "fused": fused} | entries
    return uniform(devices, microbatches, COSTS, **given)


@pytest.mark.parametrize(
    ("devices", "microbatches", "fused", "least"),
    [(4, 12, 172, 7043), (4, 12, 190, 7385), (8, 24, 172, 14211)],
)
def test_splits_raise_the_bound_of_fused_backwards_on_a_v(
    devices: int, microbatches: int, fused: int, least: int
) -> None:
    """The first two are the costs of schedules that are known."""
    instance = v_placement(devices, microbatches, fused)
    assert best_bound(instance).value == splits_bound(instance).value == least


@pytest.mark.parametrize("seed", range(20))
def test_the_closed_form_of_the_theorem_is_never_above_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    p, f, b, w, c = (rng.randint(*ends) for ends in ((2, 9), (5, 50), (5, 50), (2, 50), (0, 9)))
    n, u = p + rng.randint(1, 40), rng.randint(b + 1, b + w - 1)
    memory = Memory(2, -1, -1, 4 * p)
    entries = {"comm": c, "placement": "v", "objective": "makespan", "memory": memory, "fused": u}
    instance = uniform(p, n, (f, b, w), **entries)
    base = 2 * n * (f + u) + (p - 1) * max(b + 3 * c, f + c)
    tail = (p - 1) * (b + c) + u - b
    assert splits_bound(instance).value >= base + tail * (b + w - u) / w - 1e-6
    rounded = min(max(tail - y * (u - b), y * (b + w - u)) for y in range(4 * p + 1))
    assert splits_bound(instance).value >= base + rounded


def theorem_five(p: int, n: int, times: tuple[int, int, int, int, int], reduce: list[int] | None) -> int:
    """The bound for W's that hold a whole activation; `reduce` has the ticks of stages 0 to p after their W's."""
    f, b, w, c, u = times
    path, beta = (p - 1) * (f + b + 2 * c) + 2 * b, (p - 1) * (b + c) + u - b
    last = 0
    if reduce:
        above = ((p - 1 - s) * (b + c) + u - b + reduce[s] for s in range(p - 1))
        last, beta = min(reduce[p - 1 :]), max(reduce[p - 1], *above)
    least = min(
        y * (b + w - u) + max(0, path - 2 * p * u + y * (u - b)) + max(last, beta - y * w)
        for y in range(2 * p + 1)
    )
    return 2 * n * (f + u) + (p - 1) * max(f + c, b + 3 * c) + least


@pytest.mark.parametrize("seed", range(60))
def test_whole_weights_have_the_closed_form_of_the_theorem(seed: int) -> None:
    """In a makespan and a step; backwards may be fused. Another device may prove more where W's are short."""
    rng = random.Random(seed)
    p, f, b, w, c = (rng.randint(*ends) for ends in ((2, 9), (20, 50), (20, 50), (10, 50), (0, 9)))
    n, u = p + rng.randint(1, 40), rng.choice((b + w, rng.randint(b + 1, b + w)))
    memory, entries = Memory(1, 0, -1, 2 * p), {"comm": c, "placement": "v"}
    if u < b + w:
        entries["fused"] = u
    instance = uniform(p, n, (f, b, w), objective="makespan", memory=memory, **entries)
    least = theorem_five(p, n, (f, b, w, c, u), None)
    assert splits_bound(instance).value >= least
    assert _least_cost(instance, p - 1).cost == least
    reduce = [rng.randint(0, 60) for _ in range(2 * p)]
    step = replace(instance, objective="step", step=Step(reduce=reduce))
    assert _least_cost(step, p - 1).cost == theorem_five(p, n, (f, b, w, c, u), reduce[: p + 1])


@pytest.mark.parametrize("seed", range(12))
def test_whole_weights_of_a_v_are_below_proven_optima(seed: int) -> None:
    """Instances of two devices on which no other formula is as large."""
    rng = random.Random(seed)
    while True:
        f, b, w, c = (rng.randint(*ends) for ends in ((5, 30), (4, 30), (2, 30), (0, 8)))
        memory = Memory(2, -1, -1, 8) if seed % 2 else Memory(1, 0, -1, 4)
        entries = {"placement": "v", "comm": c, "memory": memory, "objective": "makespan"}
        instance = uniform(2, 5, (f, b, w), **entries)
        if splits_bound(instance).value > max(bound(instance).value for bound in BOUNDS):
            break
    result = solve(instance, "best", effort=5, workers=1)
    assert result.cost is not None
    assert splits_bound(instance).value == best_bound(instance).value <= result.cost


def test_whole_weights_meet_an_optimum_that_fractions_do_not() -> None:
    """Two W's each would have to fill parts of the last device's end, and there are three for them."""
    memory = Memory(1, 0, -1, 4)
    instance = uniform(2, 5, (10, 7, 9), placement="v", comm=6, memory=memory, objective="makespan")
    result = solve(instance, "best", effort=5, workers=1)
    assert max(bound(instance).value for bound in BOUNDS) == 286
    assert result.cost == splits_bound(instance).value == 289


def test_each_rule_around_the_work_raises_the_bound() -> None:
    plain = v_placement(4, 12, 172)
    held = splits_bound(replace(plain, memory=Memory(2, -1, -1, 14))).value
    assert held == 7043 + 100  # an F fewer fits before the first B
    few_w = splits_bound(replace(plain, memory=Memory(8, -2, -6, 4 * 16 - 48))).value
    assert few_w > 7043 + 600  # memory for two activations, and for two W's after the last B


def random_case(seed: int, shapes: tuple[tuple[int, int, str], ...]) -> Instance:
    """Stages that differ, with a fused backward between B and B + W; pairs and a memory limit now and then."""
    rng = random.Random(seed)
    devices, microbatches, placement = rng.choice(shapes)
    stages = uniform(devices, microbatches, (1, 1, 1), placement=placement).stages
    b, w = ([rng.randint(2, 9) for _ in range(stages)] for _ in range(2))
    entries: dict[str, Any] = {"fused": [rng.randint(x, x + y) for x, y in zip(b, w, strict=True)]}
    if seed % 3 == 0:
        entries["overlapped"] = [rng.randint(8, 24) for _ in range(devices)]
    if seed % 9 == 3:
        own = random.Random(f"pairs {seed}")  # the other draws stay what they are
        del entries["overlapped"]
        entries["pairs"] = [[own.randint(8, 24) for _ in range(stages)] for _ in range(stages)]
    if seed % 2:
        entries["memory"] = Memory(2, -1, -1, rng.choice((2, 3, 4)) * (2 * stages // devices))
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        forward=[rng.randint(1, 9) for _ in range(stages)],
        backward=b,
        weight=w,
        comm=rng.randint(0, 2),
        placement=placement,
        objective=rng.choice(("makespan", "device_span", "step")),
        **entries,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_no_optimum_is_below_the_bound_over_splits(seed: int) -> None:
    instance = random_case(seed, ((2, 3, "linear"), (3, 2, "linear"), (2, 2, "v")))
    assert splits_bound(instance).value <= cost(optimal_schedule(instance))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(100, 160))
def test_no_schedule_costs_less_than_the_bound_over_splits(seed: int) -> None:
    shapes = (
        (2, 8, "linear"),
        (3, 7, "linear"),
        (2, 6, "v"),
        (3, 6, "v"),
        (2, 4, "loop"),
        (2, 6, "bidirectional"),
    )
    instance = random_case(seed, shapes)
    found = solve(instance, "improve", effort=0.2, workers=1)
    assert found.cost is not None
    assert splits_bound(instance).value <= found.cost


def test_small_optima_are_met_where_splits_count() -> None:
    """Fused backwards alone, split ones alone, and the work leave something open on this instance."""
    instance = uniform(2, 4, (3, 4, 6), placement="linear", comm=1, objective="makespan", fused=7)
    best = cost(optimal_schedule(instance))
    others = [uniform(2, 4, (3, 4, 3), placement="linear", comm=1, objective="makespan")]
    assert max(best_bound(other).value for other in others) < splits_bound(instance).value <= best


@pytest.mark.parametrize(("devices", "microbatches", "comm"), [(2, 4, 0), (3, 9, 2), (4, 12, 10), (6, 18, 5)])
def test_a_schedule_without_splits_never_idles_in_its_middle(
    devices: int, microbatches: int, comm: int
) -> None:
    """That of the theorem: in every beat a device runs an F and a BW, whose stages alternate."""
    p, n = devices, microbatches
    instance = uniform(p, n, (10, 12, 9), placement="v", comm=comm, objective="makespan", fused=18)
    instance = replace(instance, memory=Memory(2, -1, -1, 4 * p))
    beats: list[list[tuple[int, Operation]]] = [[] for _ in range(p)]
    for m in range(n):
        for s in range(2 * p):
            beats[instance.device(s, m)] += [
                (2 * (2 * m + s), Operation(OpKind.F, s, m)),
                (2 * (2 * m + 4 * p - 2 - s) + 1, Operation(OpKind.BW, s, m)),
            ]
    assert all(len({beat for beat, _ in row}) == len(row) for row in beats)  # one of each kind in a beat
    schedule = retime(instance, Order.from_lists([[op for _, op in sorted(row)] for row in beats]))
    assert validate(instance, schedule) == []
    assert cost(schedule) <= (2 * n + 4 * p - 3) * (10 + 18)


def test_a_proven_optimum_mixes_fused_and_split_backwards() -> None:
    memory = Memory(2, -1, -1, 8)
    entries = {"placement": "v", "comm": 5, "objective": "makespan", "memory": memory, "fused": 172}
    instance = uniform(2, 6, COSTS, **entries)
    result = solve(instance, "best", effort=5, workers=1)
    assert result.cost is not None
    assert splits_bound(instance).value <= result.bound <= result.cost
