"""Pairs with experts: two chains on the GPU and the network in the least time, against all orders of the parts."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tightpipe import InputError, Instance
from tightpipe.settings import ExpertCosts, pair_ticks
from tightpipe.settings.expert_parallel import Chain, ticks_together

chains = st.lists(st.tuples(st.sampled_from(["gpu", "network"]), st.integers(1, 9)), max_size=3).map(tuple)


def by_enumeration(one: Chain, other: Chain) -> int:
    """Try every choice of who comes first on a machine; a choice that goes in circles does not end."""
    shared = [(i, j) for i, a in enumerate(one) for j, b in enumerate(other) if a[0] == b[0]]
    best = sum(ticks for _, ticks in one + other)
    for choice in product((True, False), repeat=len(shared)):
        end: dict[tuple[int, int], int] = {}
        for _ in range(len(one) + len(other) + 1):
            before = dict(end)
            for job, chain in enumerate((one, other)):
                for k, (_, ticks) in enumerate(chain):
                    waits = [end.get((job, k - 1), 0)]
                    for (i, j), first in zip(shared, choice, strict=True):
                        if job == 1 and j == k and first:
                            waits.append(end.get((0, i), 0))
                        if job == 0 and i == k and not first:
                            waits.append(end.get((1, j), 0))
                    end[job, k] = max(waits) + ticks
            if end == before:
                best = min(best, max(end.values(), default=0))
                break
    return best


@settings(max_examples=100, deadline=None)
@example(
    (("gpu", 3), ("network", 2), ("gpu", 4), ("network", 1)), (("network", 5), ("gpu", 2), ("network", 3))
)
@given(chains, chains)
def test_two_chains_take_the_least_time_of_all_orders(one: Chain, other: Chain) -> None:
    assert ticks_together(one, other) == by_enumeration(one, other) == ticks_together(other, one)


def test_a_pair_hides_the_network_behind_the_computation() -> None:
    """Alone, F takes 60 + 40 and BW 120 + 40; together they compute for 180 ticks and wait for the first 0."""
    forward, backward, weight = (
        ExpertCosts(30, 20, 30, 20),
        ExpertCosts(30, 20, 30, 20),
        ExpertCosts(30, 0, 30, 0),
    )
    assert (forward.ticks, backward.ticks, weight.ticks) == (100, 100, 60)
    assert pair_ticks([forward], [backward], [weight]) == [[180]]
    times = {"forward": 100, "backward": 100, "weight": 60, "placement": "linear"}
    instance = Instance.uniform(devices=2, microbatches=4, **times, pairs=[[180] * 2] * 2)
    assert instance.together(0, 0, 0) == 180
    assert instance.work(0) == 4 * 180


def test_each_pair_of_stages_has_its_time() -> None:
    short, long = ExpertCosts(10, 0, 10, 0), ExpertCosts(50, 0, 50, 0)
    none = [ExpertCosts(0, 0, 0, 0)] * 2
    assert pair_ticks([short, long], [short, long], none) == [[40, 120], [120, 200]]


def test_costs_are_checked() -> None:
    with pytest.raises(InputError, match="dispatch"):
        ExpertCosts(1, -1, 1, 1)
    with pytest.raises(InputError, match="one entry for each of the 2 stages"):
        pair_ticks([ExpertCosts(1, 1, 1, 1)] * 2, [ExpertCosts(1, 1, 1, 1)], [ExpertCosts(1, 0, 1, 0)] * 2)
