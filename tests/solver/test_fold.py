"""Folding: a repeating part is taken out and put back, and a search in between keeps to its places."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, Order, retime, validate
from tightpipe.model.metrics import bubble, cost, largest_work
from tightpipe.model.operation import OpKind
from tightpipe.params.budget import Budget
from tightpipe.params.solve_params import DEFAULTS, params_from_dict
from tightpipe.registry.starts import warm_starts
from tightpipe.settings import load_settings
from tightpipe.solver.engine.run import in_queue_order
from tightpipe.solver.improve import _folded, improve
from tightpipe.solver.improve.fold import Fold, fold
from tightpipe.solver.queues import queues_of, words_of

MEMORY = Memory(2, -1, -1, 16)


def long_instance(placement: str = "v", devices: int = 4, microbatches: int = 48) -> Instance:
    return uniform(devices, microbatches, (10, 12, 8), comm=1, placement=placement, memory=MEMORY)


def folded_start(instance: Instance) -> Fold:
    found = fold(in_queue_order(warm_starts(instance)[0][1]))
    assert found is not None
    return found


@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave", "bidirectional"])
def test_folding_and_unfolding_gives_the_words_back(placement: str) -> None:
    instance = replace(long_instance(placement, microbatches=96), memory=Memory(2, -1, -1, 32))
    schedule = in_queue_order(warm_starts(instance)[0][1])
    folded = fold(schedule)
    assert folded is not None
    assert validate(folded.schedule.instance, folded.schedule) == []
    back = folded.unfold(folded.schedule.order)
    assert back is not None
    queues = queues_of(instance)
    assert words_of(queues, back.order) == words_of(queues, schedule.order)
    assert cost(folded.schedule) + folded.saved == cost(schedule)


@pytest.mark.parametrize("name", ["1.5B-8x64", "6.2B-16x128", "28.3B-32x256"])
def test_greedy_schedules_of_the_papers_fold_to_few_microbatches(name: str) -> None:
    instance = load_settings()[name].instance()
    few = folded_start(instance).schedule.instance
    assert few.microbatches <= 2.5 * few.devices
    assert few == replace(instance, microbatches=few.microbatches)


def test_the_kept_periods_hold_equal_parts_of_all_queues() -> None:
    folded = folded_start(long_instance())
    queues = queues_of(folded.schedule.instance)
    for device, word in enumerate(words_of(queues, folded.schedule.order)):
        kept = word[folded.first[device] : folded.end[device]]
        period = kept[: folded.period[device]]
        assert kept == period * (len(kept) // len(period))
        shares = {queues.queues[q].count / number for q, number in Counter(period).items()}
        assert len(shares) == 1
        assert set(period) == set(queues.on(device))


def test_a_period_may_span_several_microbatches() -> None:
    instance = uniform(1, 60, (3, 5, 2), placement="linear", memory=MEMORY)
    pair = [(int(kind), m) for kind in (OpKind.F, OpKind.B, OpKind.W) for m in (0, 1)]
    operations = [(kind, 0, 2 * k + m) for k in range(30) for kind, m in pair]
    order = Order.from_lists([operations])
    folded = fold(in_queue_order(retime(instance, order)))
    assert folded is not None
    assert folded.period.tolist() == [len(pair)]
    assert folded.saved == largest_work(instance) - largest_work(folded.schedule.instance) > 0


@pytest.mark.parametrize(
    "instance",
    [*(long_instance(microbatches=n) for n in (1, 2, 5)), replace(long_instance(), iterations=2)],
    ids=["one microbatch", "two", "five", "flushed iterations"],
)
def test_what_hardly_repeats_is_not_folded(instance: Instance) -> None:
    assert fold(in_queue_order(warm_starts(instance)[0][1])) is None


def test_what_is_found_with_few_microbatches_holds_for_many() -> None:
    # all the time for folded words, so that nothing else can find what is found
    params = params_from_dict({"anneal.moves_per_item": 20, "rules.share": 0.0, "fold.share": 1.0})
    few, many = (
        uniform(4, n, (13, 19, 14), comm=2, placement="v", memory=Memory(2, -1, -1, 18)) for n in (60, 120)
    )
    starts = [warm_starts(instance)[0][1] for instance in (few, many)]
    found = [
        improve(instance, Budget(params=params), start).schedule
        for instance, start in zip((few, many), starts, strict=True)
    ]
    assert all(validate(schedule.instance, schedule) == [] for schedule in found)
    assert bubble(found[0]) < bubble(starts[0])
    assert bubble(found[1]) < bubble(starts[1])


@pytest.mark.parametrize(
    ("found", "before", "folded"),
    [
        ("modulo", "v-adaptive", "modulo"),
        ("due-date", "v-adaptive", "v-adaptive"),  # costs 2.9 % more
        ("due-date", "v-min", None),  # costs 11 % more
    ],
)
def test_a_schedule_that_folds_is_worth_a_little_more_than_one_that_does_not(
    found: str, before: str, folded: str | None
) -> None:
    instance = replace(long_instance(microbatches=24), memory=Memory(2, -1, -1, 10))
    starts = dict(warm_starts(instance))
    chosen = _folded(starts[found], starts[before], DEFAULTS.fold)
    expected = fold(in_queue_order(starts[folded])) if folded else None
    assert (chosen and chosen.schedule.order) == (expected and expected.schedule.order)
