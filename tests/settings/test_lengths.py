"""Lengths of microbatches from distributions, and instances and experiments that have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, OpKind, Placement, retime, solve, validate
from tightpipe.experiments.axes import parse_memory, parse_uneven
from tightpipe.experiments.placing import Backwards, placed, restored, restricted
from tightpipe.model.metrics import cost
from tightpipe.model.operation import COMPUTES
from tightpipe.settings import DISTRIBUTIONS, relative_lengths, with_lengths, with_slices

LAYERS = Instance.uniform(
    devices=8,
    microbatches=6,
    placement="linear",
    forward=100,
    backward=[0, *[90] * 7],
    weight=80,
    fused=150,
    comm=3,
    memory=Memory(100, [0, *[-60] * 7], [-100, *[-40] * 7], 600),
)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("sigma", [0, 0.4, 6.4])
def test_lengths_have_the_mean_of_the_instance(name: str, sigma: float) -> None:
    lengths = relative_lengths(name, sigma, 500)
    assert lengths.mean() == pytest.approx(1)
    assert lengths.min() > 0
    assert np.array_equal(lengths[:1] > 0, [True])
    assert (lengths.std() > 0.1 * sigma) == (sigma > 0)


def test_the_generator_is_the_published_one() -> None:
    rng = np.random.default_rng(48)
    multiples = np.clip(rng.normal(1, 0.4, 16), 0.1, 10)
    assert relative_lengths("normal", 0.4, 16) == pytest.approx(multiples / (multiples.sum() / 16))


def test_a_microbatch_takes_as_much_as_its_length_says() -> None:
    instance = with_lengths(LAYERS, [0.5, 2, 0.001, 1, 1, 1])
    half, double, tiny = (instance.mb_class(m) for m in range(3))
    assert [instance.duration(kind, 3, half) for kind in COMPUTES] == [50, 45, 40, 75]
    assert [instance.duration(kind, 3, double) for kind in COMPUTES] == [200, 180, 160, 300]
    assert [instance.duration(kind, 0, tiny) for kind in (OpKind.F, OpKind.B, OpKind.W)] == [1, 0, 1]
    assert [instance.memory_delta(kind, 3, double) for kind in COMPUTES] == [200, -120, -80, -200]


@given(st.lists(st.floats(0.05, 5), min_size=6, max_size=6))
def test_stages_of_microbatches_that_differ_are_joined_as_those_of_equal_ones(lengths: list[float]) -> None:
    free = parse_memory("none").apply(LAYERS)
    instance = with_lengths(free, lengths)
    joined = placed(instance, Placement("linear", 8, 1))
    assert joined == instance
    halves = placed(Instance.uniform(**_layers(lengths, 4)), Placement("linear", 2))
    whole = Instance.uniform(**_layers(lengths, 4))
    for m in range(6):
        for kind in COMPUTES:
            ticks = [whole.duration(kind, s, whole.mb_class(m)) for s in range(4)]
            found = [halves.duration(kind, s, halves.mb_class(m)) for s in range(2)]
            assert found == [sum(ticks[:2]), sum(ticks[2:])]
            held = [whole.memory_delta(kind, s, whole.mb_class(m)) for s in range(4)]
            assert [halves.memory_delta(kind, s, halves.mb_class(m)) for s in range(2)] == [
                sum(held[:2]),
                sum(held[2:]),
            ]


def _layers(lengths: list[float], stages: int) -> dict[str, object]:
    equal = Instance.uniform(
        devices=2,
        microbatches=len(lengths),
        placement="loop",
        chunks=stages // 2,
        forward=100,
        backward=90,
        weight=80,
        memory=Memory(10, -6, -4),
    )
    found = with_lengths(equal, lengths)
    return {
        "devices": 2,
        "microbatches": len(lengths),
        "placement": "loop",
        "chunks": stages // 2,
        "forward": found.costs.forward,
        "backward": found.costs.backward,
        "weight": found.costs.weight,
        "memory": found.memory,
        "classes": found.classes,
    }


@pytest.mark.parametrize("backwards", [Backwards.FUSED, Backwards.SPLIT])
def test_orders_of_fused_or_split_backwards_cost_the_same_in_the_instance(backwards: Backwards) -> None:
    instance = parse_memory("longest").apply(with_lengths(LAYERS, relative_lengths("lognormal", 0.8, 6)))
    seen = restricted(instance, backwards)
    found = solve(seen, "list").schedule
    assert found is not None
    schedule = retime(instance, restored(instance, found.order, backwards))
    assert validate(instance, schedule) == []
    assert cost(schedule) == cost(found)
    kinds = set(schedule.order.operations[schedule.order.operations[:, 1] > 0, 0].tolist())
    fused = {OpKind.F, OpKind.BW}
    assert kinds == (fused if backwards is Backwards.FUSED else {OpKind.F, OpKind.B, OpKind.W})


def test_the_memory_of_the_longest_is_that_of_the_p_longest_microbatches() -> None:
    equal = Instance.uniform(
        devices=2, microbatches=4, placement="v", forward=9, backward=9, weight=9, memory=Memory(10, -5, -5)
    )
    instance = parse_memory("longest").apply(with_lengths(equal, [1, 3, 0.5, 2]))
    assert instance.memory is not None
    assert instance.memory.limit == (100, 100)  # two stages of 30 and two of 20
    change = parse_uneven({"lengths": "normal", "sigma": 0.4})
    assert change.label == "normal 0.4"
    assert change.apply(equal) == with_lengths(equal, relative_lengths("normal", 0.4, 4))


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"lengths": "uniform", "sigma": 1}, "lengths = 'uniform': must be one of normal, lognormal"),
        ({"lengths": "normal", "sigma": -1}, "sigma = -1: must be a number from 0 to 100"),
        ({"lengths": "normal"}, "missing key 'sigma'"),
        ({"lengths": "normal", "sigma": 1, "first": 2}, "first = 2: unknown key"),
    ],
)
def test_wrong_lengths_of_an_experiment_are_named(value: dict[str, object], line: str) -> None:
    with pytest.raises(InputError) as error:
        parse_uneven(value)
    assert line in str(error.value)


@pytest.mark.source_tree
@pytest.mark.parametrize("study", ["lengths", "slices"])
def test_the_study_is_an_experiment(study: str) -> None:
    from tightpipe.experiments.experiment_file import load_experiment
    from tightpipe.experiments.grid import tasks_of

    path = Path(__file__).parents[2] / "experiments" / f"{study}.toml"
    experiment = load_experiment(path)
    tasks = tasks_of(experiment, path)
    searches = [task for task in tasks if task.row.time_limit is not None]
    assert sum(task.row.time_limit or 0 for task in searches) / 2 <= 11 * 60  # on two cores


@pytest.mark.parametrize("count", [2, 3, 5])
def test_slices_add_up_to_the_microbatch_and_later_ones_attend_to_more(count: int) -> None:
    instance = with_slices(LAYERS, count)
    for key in ("forward", "backward", "weight", "fused"):
        parts = [getattr(one, key) for one in instance.slices]
        assert tuple(map(sum, zip(*parts, strict=True))) == getattr(LAYERS.costs, key), key
    assert LAYERS.memory is not None
    memories = [one.memory for one in instance.slices if one.memory is not None]
    for key in ("forward", "backward", "weight"):
        parts = [getattr(one, key) for one in memories]
        assert tuple(map(sum, zip(*parts, strict=True))) == getattr(LAYERS.memory, key), key
    assert instance.comm(0, 1) == -(-3 // count)
    for one, k in zip(instance.slices, range(1, count + 1), strict=True):
        squares = (k**2 - (k - 1) ** 2) / count**2
        assert one.forward[3] == pytest.approx(80 / count + 20 * squares, abs=1)  # type: ignore[index]
        assert one.weight[3] == pytest.approx(80 / count, abs=1)  # type: ignore[index]
    assert with_slices(LAYERS, 1) == LAYERS
    assert parse_uneven({"slices": count}).apply(LAYERS) == instance
    assert parse_uneven({"slices": count}).label == f"slices {count}"
