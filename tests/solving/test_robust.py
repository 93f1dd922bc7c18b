"""Schedules that stand noise: valid, within memory, no worse than what was known, and honest about it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import uniform

from tightpipe import InfeasibleError, InputError, Instance, Memory, retime, validate
from tightpipe.core.budget import Budget
from tightpipe.core.metrics import cost, peak_memory
from tightpipe.noise import Jitter, SlowDevice, Slowdown, SlowLink, Stall, run_noisy
from tightpipe.noise.noisy import draw_times
from tightpipe.noise.times import BLOCK
from tightpipe.solver.robust import Measure, robust_search
from tightpipe.solver.robust.robust_kernel import value_of, walk_robustly
from tightpipe.solver.robust.robust_search import _Search
from tightpipe.solver.start import in_queue_order, one_by_one
from tightpipe.solving.robust import solve_robust

V = uniform(3, 6, (10, 12, 8), comm=2, placement="v", memory=Memory(2, -1, -1, 12))
INSTANCES = (
    V,
    uniform(3, 6, (10, 12, 8), comm=2, placement="v", memory=Memory(2, -1, -1, 12), objective="makespan"),
    uniform(2, 6, (10, 12, 8), comm=4, placement="linear", link_occupancy=15),
    uniform(2, 6, (10, 12, 8), comm=1, placement="loop", iterations=2),
    uniform(2, 4, (10, 12, 8), comm=1, placement="bidirectional"),
)


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda i: f"{i.placement.name}-{i.objective}")
@pytest.mark.parametrize("measure", list(Measure))
def test_the_search_lowers_its_measure_and_keeps_every_rule(instance: Instance, measure: Measure) -> None:
    start, models = retime(instance, one_by_one(instance)), (Jitter(0.2), Stall(None, 5.0))
    blocks = [draw_times(instance, models, 0, block) for block in range(2)]
    found, reason = robust_search(start, blocks, 40, measure, Budget())
    assert reason == ""
    assert validate(instance, found) == []
    before, after = run_noisy([start, found], models, samples=40)
    assert getattr(after.distribution, measure) < 0.9 * getattr(before.distribution, measure)


def test_the_measure_is_that_of_the_distribution() -> None:
    costs = np.random.default_rng(0).random(37)
    for measure in Measure:
        weighed = np.sort(costs) @ measure.weights(37)
        assert weighed == pytest.approx({"mean": costs.mean(), "p95": np.quantile(costs, 0.95)}[measure])


def test_one_thread_without_a_deadline_gives_the_same_schedule_again() -> None:
    start, blocks = retime(V, one_by_one(V)), [draw_times(V, (Jitter(0.2),), 0, 0)]
    one, again = (robust_search(start, blocks, 32, Measure.MEAN, Budget(seed=4))[0] for _ in range(2))
    assert one == again


def test_a_solve_says_what_it_searched_and_what_fresh_samples_say() -> None:
    models = (Jitter(0.2),)
    result = solve_robust(V, "p95", models, samples=33, time_limit=1.0, workers=1, seed=2)
    schedule = result.schedule
    assert validate(V, schedule) == []
    assert (peak_memory(schedule) <= 12).all()
    assert result.robust.cost == cost(schedule)
    assert result.bound is not None
    assert result.bound <= result.plain.cost <= result.robust.cost
    searched = run_noisy([schedule], models, samples=33, seed=2)[0]
    fresh = run_noisy([schedule], models, samples=1000, seed=4)[0]
    assert result.robust.searched == searched.distribution
    assert result.robust.fresh == fresh.distribution
    chosen = run_noisy([schedule, result.plain.schedule], models, samples=1000, seed=3)
    assert chosen[0].distribution.p95 <= chosen[1].distribution.p95


def test_a_slow_link_is_worth_another_order() -> None:
    """1F1B with one forward in flight waits for the link at every microbatch; other orders hide it."""
    instance = uniform(2, 8, (10, 12, 8), comm=1, placement="linear", objective="makespan")
    models = (SlowLink(0, 1, Slowdown(ticks=30.0)), SlowLink(1, 0, Slowdown(ticks=30.0)))
    result = solve_robust(instance, "mean", models, samples=1, time_limit=2.0, workers=1)
    assert result.robust.fresh.deviation == pytest.approx(0.0)
    assert result.robust.fresh.mean < result.plain.fresh.mean


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measure": "median"}, "robust = 'median': must be one of mean, p95"),
        ({"models": ()}, "noise: needs at least one model"),
        ({"samples": 0}, "samples = 0: must be at least 1"),
        ({"samples": 5000}, "samples = 5000: must be at most 4096"),
        ({"models": (SlowDevice(7, 2.0),)}, "the instance has devices 0..2"),
        (
            {"instance": uniform(2, 4, (10, 12, 8), placement="bidirectional", overlapped=15)},
            "does not overlap",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(change: dict[str, object], words: str) -> None:
    options: dict[str, object] = {"instance": V, "measure": "mean", "models": (Jitter(0.1),), **change}
    with pytest.raises(InputError) as error:
        solve_robust(time_limit=0.1, **options)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_an_instance_without_a_schedule_has_no_robust_one() -> None:
    instance = uniform(2, 4, (10, 12, 8), placement="v", memory=Memory(2, -1, -1, 3))
    with pytest.raises(InfeasibleError):
        solve_robust(instance, "mean", (Jitter(0.1),), time_limit=0.1)


def begun(instance: Instance, measure: Measure) -> _Search:
    """A search that has judged its start by 40 samples in two blocks."""
    blocks = [draw_times(instance, (Jitter(0.2),), 0, block) for block in range(2)]
    return _Search(
        in_queue_order(retime(instance, one_by_one(instance))), blocks, measure.weights(40), Budget()
    )


def judged(search: _Search, most: float = np.inf) -> tuple[float, float]:
    (walker,) = search.walkers
    return value_of(search.graph, search.sample, search.events.spans, walker.walk, most)


@pytest.mark.parametrize("instance", INSTANCES[:2], ids=lambda i: str(i.objective))
@pytest.mark.parametrize("measure", list(Measure))
def test_an_order_is_judged_by_the_measure_of_its_costs(instance: Instance, measure: Measure) -> None:
    search = begun(instance, measure)
    noisy = run_noisy([search.start], (Jitter(0.2),), samples=40)[0]
    value, first = judged(search)
    assert value == pytest.approx(getattr(noisy.distribution, measure))
    assert first == pytest.approx(noisy.costs[:BLOCK].mean())


def test_an_order_that_is_bad_in_the_first_block_is_judged_no_further() -> None:
    search = begun(V, Measure.MEAN)
    value, first = judged(search)
    assert judged(search, first) == (value, first)
    assert judged(search, first - 0.001) == (np.inf, first)


def test_an_order_that_deadlocks_costs_more_than_any_other() -> None:
    search = begun(V, Measure.MEAN)
    word = search.walkers[0].walk.word
    word[:2] = word[1::-1]  # the second forward of the first microbatch before its first
    assert judged(search) == (np.inf, np.inf)


@pytest.mark.parametrize(("warmth", "rises"), [(0.0, False), (100.0, True)])
def test_a_walk_keeps_every_rule_and_its_best_order(warmth: float, rises: bool) -> None:
    scarce = replace(V, memory=Memory(2, -1, -1, 6))
    search = begun(scarce, Measure.MEAN)
    (walker,) = search.walkers
    start, walk = walker.value, walker.walk
    value, best = walk_robustly(
        *(search.graph, search.events, search.sample, walk, walker.random, 500, warmth, start, start),
        search.moves,
    )
    assert best < start
    assert (value > best) == rises
    assert walk.place[walk.word].tolist() == list(range(len(walk.word)))
    assert judged(search)[0] == pytest.approx(value)
    walk.word[:], walk.release[:] = walk.best_word, walk.best_release
    assert judged(search)[0] == pytest.approx(best)
    walker.best = best
    assert validate(scarce, search.schedule()) == []
