"""Every method on instances with all that steps have, or microbatches that differ: a schedule, or one line why not."""

from __future__ import annotations

import pytest

from tightpipe import InputError, Instance, Memory, MicrobatchClass, Result, solve, validate
from tightpipe.model.costs import Step
from tightpipe.model.metrics import cost
from tightpipe.model.placement import Placement
from tightpipe.registry.methods import METHODS
from tightpipe.registry.starts import warm_starts


def wide(placement: str, devices: int = 8, microbatches: int = 24) -> Instance:
    """The first stage is frozen; fused backwards take 14 % less; stages are reduced and the step ends later."""
    stages = Placement(placement, devices).stages
    frozen, limit = [0] + [1] * (stages - 1), 4 * devices
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        placement=placement,
        forward=100,
        backward=[110 * there for there in frozen],
        weight=[90 * there for there in frozen],
        fused=172,
        comm=5,
        memory=Memory([2] * stages, [-there for there in frozen], [-there for there in frozen], limit),
        objective="step",
        step=Step([0] * stages, [40] * stages, [25] * devices),
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_returns_a_valid_schedule_of_a_wide_instance_or_one_line_why_not(name: str) -> None:
    method = METHODS[name]
    check(wide("v" if "v" in method.placements else method.placements[0]), name)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("counts", [(6, 2), (1,) * 8])
def test_every_method_returns_a_valid_schedule_of_microbatches_that_differ_or_one_line_why_not(
    name: str, counts: tuple[int, ...]
) -> None:
    method = METHODS[name]
    for placement in method.placements if method.kind == "heuristic" else ("linear", "bidirectional"):
        for fused in (None, 25):
            check(classes_of(counts, placement, fused), name)


def classes_of(counts: tuple[int, ...], placement: str, fused: int | None) -> Instance:
    """Each class takes half as long again as the one before, and as much more memory."""
    sizes = [round(10 * 1.5**k) for k in range(len(counts))]
    return Instance.uniform(
        devices=4,
        placement=placement,
        forward=1,
        backward=1,
        weight=1,
        comm=1,
        memory=Memory(2, -1, -1, 16 * sizes[-1]),
        classes=[
            MicrobatchClass(
                *(count, ticks, ticks, ticks, fused and 2 * ticks - 5, Memory(2 * ticks, -ticks, -ticks))
            )
            for count, ticks in zip(counts, sizes, strict=True)
        ],
    )


def check(instance: Instance, name: str) -> None:
    result = solved(instance, name)
    if isinstance(result, InputError) or result.schedule is None:
        assert len(str(result if isinstance(result, InputError) else result.reason).splitlines()) == 1
    else:
        assert validate(instance, result.schedule) == []
        assert result.bound is not None
        assert result.bound <= result.cost


def solved(instance: Instance, name: str) -> Result | InputError:
    try:
        return solve(instance, name, time_limit=1, workers=1)
    except InputError as refusal:
        return refusal


def test_no_rule_and_no_search_refuses_a_wide_instance() -> None:
    """A published order may lack the memory or the microbatches."""
    names = ("greedy-v", "list", "due-date", "modulo", "mixed", "v-adaptive")
    searches = ("cpsat", "improve", "best", "milp", "block")
    refused = {name for name in (*names, *searches) if isinstance(solved(wide("v", 4, 12), name), InputError)}
    assert refused == set()


@pytest.mark.parametrize(
    ("name", "placement"),
    [
        ("dualpipe-v", "v"),
        ("1f1b-overlap", "linear"),
        ("interleaved-overlap", "loop"),
        ("dualpipe", "bidirectional"),
    ],
)
def test_searches_start_from_published_orders_with_pairs(name: str, placement: str) -> None:
    """Where an F with a BW takes 220 ticks in place of 300, the orders with pairs are the cheapest starts."""
    instance = Instance.uniform(
        devices=4,
        microbatches=16,
        placement=placement,
        forward=100,
        backward=110,
        weight=90,
        overlapped=220,
        comm=5,
        objective="makespan",
    )
    costs = {each: cost(schedule) for each, schedule in warm_starts(instance)}
    without = {each: costs[each] for each in ("list", "modulo") if each in costs}
    assert name in costs
    assert costs[name] < without["modulo"]
    result = solve(instance, "improve", effort=0.1, workers=1)
    assert result.cost <= min(costs.values())
