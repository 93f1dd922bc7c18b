"""Models of noise: their distributions, their texts, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.cases import uniform

from tightpipe import InputError
from tightpipe.noise import (
    Bursts,
    Jitter,
    NoiseModel,
    SlowDevice,
    Slowdown,
    SlowLink,
    Stall,
    Times,
    parse_noise,
    parse_noises,
)
from tightpipe.noise.models import planned_times

V = uniform(4, 250, (100, 120, 80), comm=3, placement="v")


def drawn(*models: NoiseModel) -> Times:
    times, random = planned_times(V), np.random.default_rng(1)
    for model in models:
        model.apply(V, times, random)
    return times


def test_jitter_has_mean_1_and_the_given_variation() -> None:
    """192,000 factors: the mean has a standard error of 0.0005, the variation one of about 0.0005."""
    factor = drawn(Jitter(0.2)).duration / planned_times(V).duration
    assert factor.mean() == pytest.approx(1.0, abs=0.003)
    assert factor.std() == pytest.approx(0.2, abs=0.004)
    assert np.log(factor).std() == pytest.approx(np.sqrt(np.log(1.04)), abs=0.004)
    assert (
        np.abs(np.corrcoef(factor[0, 0])[np.triu_indices(250, 1)]).mean() < 0.25
    )  # operations are independent


def test_measured_spread_is_that_of_its_stage_and_kind() -> None:
    spread = tuple(tuple(0.0 if (kind, s) != (1, 3) else 0.5 for s in range(8)) for kind in range(3))
    factor = drawn(Jitter(spread)).duration / planned_times(V).duration
    assert factor[1, 3].std() == pytest.approx(0.5, abs=0.03)
    factor[1, 3] = 1.0
    assert (factor == 1.0).all()


def test_a_slow_link_delays_its_messages_alone() -> None:
    for slowdown, ticks in ((Slowdown(3.0), 9.0), (Slowdown(ticks=5.0), 8.0)):
        lag = drawn(SlowLink(1, 2, slowdown)).lag
        slow = np.zeros((2, 8), bool)
        slow[0, 2] = slow[1, 5] = (
            True  # in a V: F from stage 1 to 2, and B from stage 6 on device 1 to 5 on 2
        )
        assert (lag[slow] == ticks).all()
        assert np.array_equal(lag[~slow], planned_times(V).lag[~slow])


def test_bursts_have_their_share_and_their_length() -> None:
    times = drawn(Bursts(1, 2, 0.25, 5.0, Slowdown(ticks=7.0)))
    slow = times.lag[0, 2] > 3.0
    assert np.array_equal(slow, times.lag[1, 5] > 3.0)  # one chain for the link
    assert slow.mean() == pytest.approx(0.25, abs=0.05)
    ends = (slow[:-1] & ~slow[1:]).sum() / slow[:-1].sum()
    assert ends == pytest.approx(1 / 5, abs=0.04)


def test_a_stall_is_one_device_in_each_sample() -> None:
    assert ((drawn(Stall(2, 9.0)).stall > 0).sum(axis=1) == [0, 0, 32, 0]).all()
    anywhere = drawn(Stall(None, 9.0)).stall
    assert (np.count_nonzero(anywhere, axis=0) == 1).all()
    assert np.count_nonzero(anywhere.any(axis=1)) > 1


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("jitter:0.1", Jitter(0.1)),
        ("slow-device:3:1.2", SlowDevice(3, 1.2)),
        ("slow-link:1:2:3", SlowLink(1, 2, Slowdown(3.0))),
        ("slow-link:1:2:+500", SlowLink(1, 2, Slowdown(ticks=500.0))),
        ("bursts:1:2:0.1:4:+500", Bursts(1, 2, 0.1, 4.0, Slowdown(ticks=500.0))),
        ("stall:0:500", Stall(0, 500.0)),
        ("stall:any:500", Stall(None, 500.0)),
    ],
)
def test_a_text_stands_for_a_model_and_back(text: str, model: NoiseModel) -> None:
    assert parse_noise(text) == model
    assert str(model) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jitter:-1", "'jitter:-1': jitter must be a number from 0 to 10"),
        ("jitter:nan", "must be a number from 0 to 10"),
        ("jitter", "must be jitter:VARIATION"),
        ("jitter:a", "must be jitter:VARIATION"),
        ("gauss:0.1", "must be one of: jitter:VARIATION"),
        ("slow-device:1", "must be slow-device:DEVICE:FACTOR"),
        ("slow-device:1:0", "factor must be a number above 0"),
        ("slow-link:0:1:+-3", "ticks must be a number from 0"),
        ("bursts:0:1:0:4:+3", "share must be a number above 0"),
        ("bursts:0:1:1:4:+3", "share must be below 1"),
        ("bursts:0:1:0.9:4:+3", "length must be at least 9"),
        ("bursts:0:1:0.5:0.5:+3", "length must be a number from 1"),
        ("stall:0:0", "ticks must be a number above 0"),
        ("stall:0:inf", "ticks must be a number above 0"),
    ],
)
def test_a_wrong_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        parse_noise(text)
    assert words in str(error.value)
    assert str(error.value).startswith("noise = ")


def test_a_second_stall_is_refused() -> None:
    with pytest.raises(InputError, match="must be the only stall"):
        parse_noises(["stall:0:5", "stall:1:5"])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (SlowDevice(4, 2.0), "device = 4: the instance has devices 0..3"),
        (Stall(9, 2.0), "device = 9: the instance has devices 0..3"),
        (SlowLink(0, -1, Slowdown(2.0)), "device = -1: the instance has devices 0..3"),
        (SlowLink(0, 2, Slowdown(2.0)), "no message goes from device 0 to device 2"),
        (Jitter(((0.1,) * 3,) * 3, "spread.csv"), "has 3 stages, the instance 8"),
    ],
)
def test_a_model_that_does_not_fit_the_instance_is_refused(model: NoiseModel, words: str) -> None:
    with pytest.raises(InputError) as error:
        model.check(V)
    assert words in str(error.value)


def test_a_multiple_of_no_time_is_refused() -> None:
    instance = uniform(2, 2, (10, 12, 8), placement="linear")
    with pytest.raises(InputError, match="take 0 ticks; give the ticks to add"):
        SlowLink(0, 1, Slowdown(2.0)).check(instance)
    SlowLink(0, 1, Slowdown(ticks=2.0)).check(instance)


def test_a_link_without_gradients_has_no_messages_back() -> None:
    forwards = uniform(2, 2, (10, 0, 0), comm=1, placement="linear")
    SlowLink(0, 1, Slowdown(2.0)).check(forwards)
    for model in (SlowLink(1, 0, Slowdown(2.0)), Bursts(1, 0, 0.3, 2.0, Slowdown(2.0))):
        with pytest.raises(InputError, match="no message goes from device 1 to device 0"):
            model.check(forwards)
    frozen = uniform(2, 2, (10, [0, 12], [0, 8]), comm=1, placement="linear")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no message goes from device 1 to device 0"):
        SlowLink(1, 0, Slowdown(2.0)).check(frozen)


SPREAD = "stage,kind,variation\n0,F,0.1\n0,B,0.2\n0,W,0.3\n"


def test_measured_spread_is_read(tmp_path: Path) -> None:
    path = tmp_path / "spread.csv"
    path.write_text(SPREAD)
    model = parse_noise(f"jitter:{path}")
    assert model == Jitter(((0.1,), (0.2,), (0.3,)), str(path))
    assert str(model) == f"jitter:{path}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the first line must be stage,kind,variation"),
        ("stage,kind,variation\n", "has no line for stage 0, kind F"),
        (SPREAD + "1,F,0.1\n", "has no line for stage 1, kind B"),
        (SPREAD + "0,F,0.1\n", "line 5 = '0,F': is the second line"),
        (SPREAD + "0,X,0.1\n", "line 5 = '0,X': must have a stage"),
        (SPREAD + "0,F\n", "line 5: must be a stage, a kind and a number"),
        (SPREAD.replace("0.3", "-3"), "must be a number from 0 to 10"),
    ],
)
def test_a_wrong_table_of_spread_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "spread.csv"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        parse_noise(f"jitter:{path}")
    assert words in str(error.value)
    assert str(error.value).startswith(str(path))
