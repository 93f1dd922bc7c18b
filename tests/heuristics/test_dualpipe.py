"""DualPipe and DualPipe-V: the golden orders, the closed form of the bubble, what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, NoScheduleError, retime, simulate, validate
from tightpipe.heuristics.dualpipe import dualpipe_order, dualpipe_v_order
from tightpipe.model.metrics import bubble, cost, peak_memory

MAKE = {"dualpipe": (dualpipe_order, "bidirectional"), "dualpipe_v": (dualpipe_v_order, "v")}
SCALE = 4  # the golden durations are multiples of a quarter
GOLDEN = [
    row
    for row in json.loads((Path(__file__).parent.parent / "data" / "strategies.json").read_text())
    if row["strategy"] in MAKE
]


def instance(strategy: str, devices: int, microbatches: int, **more: Any) -> Instance:
    ticks = {"forward": SCALE, "backward": SCALE, "weight": SCALE} | more
    placement = MAKE[strategy][1]
    return Instance.uniform(
        devices=devices, microbatches=microbatches, placement=placement, objective="makespan", **ticks
    )


@pytest.mark.parametrize(
    "row", GOLDEN, ids=lambda r: f"{r['strategy']}-{r['config']['num_devices']}x{r['config']['num_batches']}"
)
def test_golden_orders_and_times(row: dict[str, Any]) -> None:
    config = row["config"]
    overlapped = config.get("op_times", {}).get("overlapped_forward_backward")
    problem = instance(
        row["strategy"],
        config["num_devices"],
        config["num_batches"],
        overlapped=None if overlapped is None else int(SCALE * overlapped),
    )
    order = MAKE[row["strategy"]][0](problem)
    assert str(order) == "\n".join(row["orders"])
    schedule = simulate(problem, order)
    assert cost(schedule) == SCALE * row["total_time"]
    assert validate(problem, schedule) == []


@pytest.mark.parametrize("devices", [2, 4, 8, 16])
@pytest.mark.parametrize("ticks", [(4, 4, 4, 12), (10, 10, 8, 28), (8, 8, 4, 20)])
def test_bubble_of_the_paper(devices: int, ticks: tuple[int, int, int, int]) -> None:
    """(p/2 - 1)(overlapped + B - 3W) with B the whole backward (arXiv:2412.19437, table 2).

    It applies where F = B and the overlapped pair takes the sum; a faster pair gives less bubble.
    """
    f, b, w, both = ticks
    problem = instance("dualpipe", devices, 4 * devices, forward=f, backward=b, weight=w, overlapped=both)
    schedule = simulate(problem, dualpipe_order(problem))
    assert bubble(schedule) == (devices // 2 - 1) * (both + (b + w) - 3 * w)


def test_peak_memory_of_the_paper() -> None:
    """p + 1 activations of a stage (arXiv:2412.19437, table 2)."""
    problem = instance("dualpipe", 8, 32, memory=Memory(2, -1, -1, None))
    assert peak_memory(simulate(problem, dualpipe_order(problem))).tolist() == [2 * 9] * 8


@given(
    st.sampled_from(sorted(MAKE)),
    st.integers(1, 3),
    st.integers(0, 4),
    st.lists(st.integers(1, 20), min_size=4, max_size=4),
    st.integers(0, 5),
)
def test_every_schedule_is_valid(strategy: str, half: int, more: int, ticks: list[int], comm: int) -> None:
    f, b, w, both = ticks
    problem = instance(
        strategy, 2 * half, 4 * half + 2 * more, forward=f, backward=b, weight=w, overlapped=both, comm=comm
    )
    schedule = retime(problem, MAKE[strategy][0](problem))
    assert validate(problem, schedule) == []


@pytest.mark.parametrize("strategy", MAKE)
def test_too_few_microbatches_are_named(strategy: str) -> None:
    with pytest.raises(NoScheduleError, match="at least 2 microbatches per device: 8, not 6"):
        MAKE[strategy][0](instance(strategy, 4, 6))


def test_odd_devices_are_refused_by_the_placement() -> None:
    with pytest.raises(InputError, match="even number of devices, not 3"):
        instance("dualpipe", 3, 6)


def test_a_small_limit_is_named() -> None:
    problem = instance("dualpipe", 4, 8, memory=Memory(2, -1, -1, 8))
    with pytest.raises(NoScheduleError, match="at least 10, and has 8"):
        dualpipe_order(problem)
