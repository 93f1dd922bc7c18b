"""Logs of Megatron-LM's timers: totals of each rank, and what they lack."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.traces import TIMERS

from tightpipe import InputError
from tightpipe.measuring import is_timer_log, read_timers


def written(folder: Path, text: str) -> Path:
    (folder / "train.log").write_text(text)
    return folder / "train.log"


def test_totals(tmp_path: Path) -> None:
    path = written(tmp_path, TIMERS)
    assert is_timer_log(path)
    found = read_timers(path)
    assert found.blocks == 1  # the first one is warm-up
    first, second = found.devices
    assert (first.step, first.forward, first.backward, first.messages) == (100e3, 20e3, 40e3, 30e3)
    assert (second.busy, second.messages, second.other) == (70e3, 12.5e3, 17.5e3)
    assert found.bubble_rate == pytest.approx(0.3)
    instance = found.instance(4)
    assert instance.costs.forward == (5000, 6000)
    assert instance.costs.backward == instance.costs.weight == (5000, 5750)


def test_ranks_of_one_device(tmp_path: Path) -> None:
    found = read_timers(written(tmp_path, TIMERS), devices=1)
    assert [device.forward for device in found.devices] == [22e3]
    with pytest.raises(InputError, match="devices = 3: must divide the number of ranks, 2"):
        read_timers(written(tmp_path, TIMERS), devices=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no times of each rank; record with --timing-log-level 2 --timing-log-option all"),
        (
            "(min, max) time across ranks (ms):\n    forward-compute ....: (1.00, 2.00)\n",
            "has no times of each rank",
        ),
        (TIMERS.replace("backward-compute", "other"), "backward-compute: this timer is missing"),
        ("times across ranks (ms):\n", "forward-backward: this timer is missing"),
        (TIMERS.replace("100.00", "0.00"), r"forward-backward = 0\.0: must be above 0"),
    ],
)
def test_what_is_missing(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"train.log: {message}"):
        read_timers(written(tmp_path, text))
