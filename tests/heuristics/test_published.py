"""All published families together: valid or a clear error, golden orders, Table 5, limits, size."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import instances
from hypothesis import given, settings

from tightpipe import (
    InfeasibleError,
    InputError,
    Instance,
    Memory,
    NoScheduleError,
    Order,
    retime,
    simulate,
    validate,
)
from tightpipe.heuristics import HEURISTICS, Heuristic
from tightpipe.heuristics.registry import PUBLISHED
from tightpipe.model.metrics import bubble_rate, cost, peak_memory
from tightpipe.settings import Table5Row, load_table5

DATA = Path(__file__).parent.parent / "data"
FAMILIES = {family.name: family for family in PUBLISHED}
SCALE = 4  # the golden durations are multiples of a quarter
STRATEGIES = {"1f1b": "1f1b", "zb1p": "zb-h1", "interleaved_1f1b": "interleaved-1f1b"}
GOLDEN = [row for row in json.loads((DATA / "strategies.json").read_text()) if row["strategy"] in STRATEGIES]
PAPER = json.loads((DATA / "paper_bubble_rates.json").read_text())["table5"]
COLUMNS: dict[str, tuple[str, int | None]] = {
    "1F1B": ("1f1b", None),
    "ZB-H1": ("zb-h1", None),
    "ZB-H2": ("zb-h2", None),
    "ZB-1p": ("zb-auto", 1),
    "ZB-2p": ("zb-auto", 2),
}
by_name = pytest.mark.parametrize("name", FAMILIES)


def uniform(name: str, devices: int, microbatches: int, limit: int | None = None) -> Instance:
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        forward=10,
        backward=12,
        weight=8,
        comm=1,
        placement=FAMILIES[name].placements[0],
        memory=Memory(2, -1, -1, limit),
    )


def test_all_are_registered() -> None:
    """They run microbatches that differ by number, if no sequence is asked for."""
    by_number = [replace(family, sequences=("arrival",)) for family in PUBLISHED]
    assert [HEURISTICS[name] for name in FAMILIES] == by_number


def outcome(family: Heuristic, instance: Instance) -> Order | str:
    """The order, or what the error says."""
    try:
        return family.make(instance)
    except (InputError, InfeasibleError, NoScheduleError) as error:
        return f"{type(error).__name__}: {error}"


@settings(deadline=None)  # the first call may compile
@given(instances(max_devices=5, max_microbatches=9))
def test_every_family_is_valid_or_says_why_not(instance: Instance) -> None:
    for family in PUBLISHED:
        result = outcome(family, instance)
        if instance.placement.name not in family.placements:
            assert f"{family.name} is for the placement {family.placements[0]}" in result
        elif instance.infeasibility():
            assert result == f"InfeasibleError: {instance.infeasibility()}"
        elif isinstance(result, str):
            assert re.match(rf"NoScheduleError: {family.name} .*limit of at least \S", result)
        else:
            assert validate(instance, simulate(instance, result)) == []
            assert validate(instance, retime(instance, result)) == []


@by_name
@pytest.mark.parametrize(("devices", "microbatches"), [(1, 1), (1, 5), (2, 3), (4, 2), (6, 12), (9, 9)])
def test_the_limit_that_the_error_names_is_enough_and_the_smallest(
    name: str, devices: int, microbatches: int
) -> None:
    free = uniform(name, devices, microbatches)
    if name in ("zb-auto", "v-min", "v-half", "v-zb"):
        return  # their orders follow the limit
    order = FAMILIES[name].make(free)
    peak = int(peak_memory(simulate(free, order)).max())
    least = max(free.smallest_limit(d) for d in range(devices))
    assert FAMILIES[name].make(uniform(name, devices, microbatches, peak)) == order
    if peak > least:
        with pytest.raises(NoScheduleError, match=f"{name} needs a memory limit of at least {peak}"):
            FAMILIES[name].make(uniform(name, devices, microbatches, peak - 1))


def test_limits_per_device_are_named_per_device() -> None:
    free = uniform("1f1b", 3, 6)
    assert free.memory is not None
    tight = replace(free, memory=replace(free.memory, limit=[6, 2, 2]))
    with pytest.raises(NoScheduleError, match=r"at least \[6, 4, 2\] \(per device\), and has \[6, 2, 2\]"):
        FAMILIES["1f1b"].make(tight)


def test_an_instance_without_schedule_is_infeasible() -> None:
    with pytest.raises(InfeasibleError):
        FAMILIES["v-min"].make(uniform("v-min", 4, 8, limit=3))


@pytest.mark.parametrize(
    "row",
    GOLDEN,
    ids=lambda r: (
        f"{r['strategy']}-{r['config']['num_stages']}on{r['config']['num_devices']}-c{r['config']['p2p_latency']}"
    ),
)
def test_golden_orders_and_times(row: dict[str, Any]) -> None:
    config = row["config"]
    family = FAMILIES[STRATEGIES[row["strategy"]]]
    instance = Instance.uniform(
        devices=config["num_devices"],
        microbatches=config["num_batches"],
        forward=SCALE,
        backward=SCALE,
        weight=SCALE,
        comm=int(SCALE * config["p2p_latency"]),
        placement=family.placements[0],
        chunks=config["num_stages"] // config["num_devices"],
        objective="makespan",
    )
    order = family.make(instance)
    assert str(order) == "\n".join(row["orders"])
    assert cost(simulate(instance, order)) == SCALE * row["total_time"]


def test_the_table_in_the_package_is_the_papers() -> None:
    for row, paper in zip(load_table5(), PAPER, strict=True):
        setting = row.setting
        assert row.published == {k: v for k, v in paper.items() if "1F1B" in k or k.startswith("ZB")}
        shape = (setting.model, setting.layers, setting.hidden, setting.heads, setting.devices)
        assert shape == tuple(paper[k] for k in ("model", "layers", "hidden", "heads", "p"))
        times = (setting.forward, setting.backward, setting.weight, setting.comm, setting.microbatches)
        assert times == tuple(paper[k] for k in "fbwcn")


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", load_table5(), ids=lambda r: r.setting.name)
def test_bubble_rates_of_table_5(row: Table5Row, column: str) -> None:
    name, times_p = COLUMNS[column]
    instance = row.instance(times_p)
    schedule = simulate(instance, FAMILIES[name].make(instance))
    assert round(bubble_rate(schedule), 4) == row.published[column]


def test_retiming_changes_no_cell_of_table_5() -> None:
    row = load_table5()[0]
    for name, times_p in COLUMNS.values():
        instance = row.instance(times_p)
        order = FAMILIES[name].make(instance)
        assert cost(retime(instance, order)) == cost(simulate(instance, order))


@by_name
def test_32_devices_and_256_microbatches_give_a_valid_schedule(name: str) -> None:
    instance = uniform(name, 32, 256)
    assert validate(instance, simulate(instance, FAMILIES[name].make(instance))) == []
