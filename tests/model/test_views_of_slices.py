"""What shows schedules of slices names them, and what knows no slices refuses them in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command_line import call

from tightpipe import InputError, Instance, Memory, MicrobatchSlice, Schedule, plot, retime
from tightpipe.drawing.lanes import length_names, number
from tightpipe.explain import explain
from tightpipe.explain.critical import legs
from tightpipe.export import export
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.instance_file import save_instance
from tightpipe.model.metrics import cost, memory_of_1f1b
from tightpipe.program import lower

INSTANCE = Instance.uniform(
    devices=3,
    microbatches=6,
    forward=10,
    backward=10,
    weight=8,
    comm=1,
    placement="linear",
    memory=Memory(2, -1, -1, 12),
    slices=[MicrobatchSlice(), MicrobatchSlice(forward=12)],
)


def schedule() -> Schedule:
    return retime(INSTANCE, HEURISTICS["seq-1f1b"].order(INSTANCE))


def test_an_explanation_names_the_slices() -> None:
    found = explain(schedule(), relax=False)
    assert all(step.name.count(".") == 2 for step in found.critical)
    assert "F0.0.0" in str(legs(found.critical)[0])
    waits = [idle for idle in found.idle if idle.next is not None]
    assert waits
    assert all(INSTANCE.name(idle.next) in (str(idle), idle.to_dict()["next"]) for idle in waits if idle.next)


def test_the_work_of_uneven_devices_can_be_evened_out() -> None:
    uneven = replace(INSTANCE, costs=replace(INSTANCE.costs, forward=[10, 14, 11]), slices=())
    instance = replace(uneven, slices=[MicrobatchSlice(), MicrobatchSlice(forward=[12, 17, 13])])
    done = retime(instance, HEURISTICS["seq-1f1b"].order(instance))
    found = explain(done)
    even = [one for one in found.relaxations if "even work" in str(one)]
    assert len(even) == 1
    assert even[0].cost is not None
    assert even[0].cost < cost(done)


def test_a_plot_names_the_slices() -> None:
    done = schedule()
    assert [number(done.instance, unit) for unit in range(4)] == ["0.0", "0.1", "1.0", "1.1"]
    plot(done)


def test_the_legend_names_the_slices_that_cost_the_same() -> None:
    assert [name for _, name, _ in length_names(INSTANCE)] == ["slice 0", "slice 1"]
    alike = replace(
        INSTANCE, slices=[MicrobatchSlice(forward=9), *INSTANCE.slices, MicrobatchSlice(forward=9)]
    )
    assert [name for _, name, _ in length_names(alike)] == ["slices 0, 3", "slice 1", "slice 2"]


def test_memory_of_1f1b_is_that_of_whole_microbatches() -> None:
    assert memory_of_1f1b(INSTANCE) == 12 / (3 * 4)


def test_what_knows_no_slices_refuses_them_in_one_line(tmp_path: Path) -> None:
    done = schedule()
    calls = {
        "a program": lambda: lower(done),
        "another program": lambda: export(done, "torch-csv", tmp_path / "x.csv"),
    }
    for what, do in calls.items():
        with pytest.raises(InputError) as error:
            do()
        assert str(error.value) == f"slices = 2: must be left out: {what} needs whole microbatches"
    assert list(tmp_path.iterdir()) == []


def test_commands_end_with_status_2_and_one_line(tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    save_instance(INSTANCE, path)
    ended = call("solve", path, "--method", "block")
    assert ended.returncode == 2
    assert "slices = 2: block needs whole microbatches" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
