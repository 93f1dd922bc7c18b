"""The grid of an experiment: which tasks there are, and which instances they solve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from experiments.sweeps import SMALL, write_experiment

from tightpipe import InputError, Instance
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import tasks_of
from tightpipe.experiments.task import Task
from tightpipe.model.instance_file import instance_from_dict
from tightpipe.settings import load_settings


def planned(folder: Path, text: str) -> list[Task]:
    path = write_experiment(folder, text)
    return tasks_of(load_experiment(path), path)


def instances(folder: Path, *axes: str) -> list[Instance]:
    text = 'instances = ["small.json"]\nmethods = ["list"]\n' + "\n".join(axes)
    return [instance_from_dict(json.loads(task.payload)["instance"]) for task in planned(folder, text)]


def limit(instance: Instance) -> object:
    assert instance.memory is not None
    return instance.memory.limit


def test_axes_that_mean_nothing_to_a_heuristic_do_not_multiply_it(tmp_path: Path) -> None:
    text = (
        SMALL + 'seeds = [0, 1]\nwarm_starts = ["best", "none"]\nobjectives = ["device_span", "makespan"]\n'
    )
    methods = [task.row.method for task in planned(tmp_path, text)]
    assert {m: methods.count(m) for m in methods} == {"list": 4, "cpsat": 16}


def test_keys_are_the_same_in_every_run_and_differ_between_tasks(tmp_path: Path) -> None:
    first, second = planned(tmp_path, SMALL), planned(tmp_path, SMALL)
    assert first == second
    assert len({task.row.key for task in first}) == len(first) == 4


def test_memory_in_activations_is_of_one_stage_in_every_placement(tmp_path: Path) -> None:
    text = 'settings = ["6.2B-16x48"]\nmemory = ["own", "2p", "2.5p", "smallest"]\nmethods = ["greedy-v", "zb-h1"]\n'
    setting = load_settings()["6.2B-16x48"]
    limits = {(t.row.method, t.row.memory): t.row.memory_limit for t in planned(tmp_path, text)}
    for method, stages in (("greedy-v", 1), ("zb-h1", 2)):  # of the setting's that make one of the instance's
        assert limits[method, "own"] == setting.memory(0).limit
        assert limits[method, "2p"] == stages * setting.memory(0).limit
        assert limits[method, "2.5p"] == stages * setting.memory(8).limit
        assert limits[method, "smallest"] == 2 * setting.forward_memory


def test_rows_say_which_limits_of_two_placements_are_equal(tmp_path: Path) -> None:
    text = 'settings = ["6.2B-16x48"]\nmemory = ["1p", "2p", "none"]\nmethods = ["greedy-v", "1f1b"]\n'
    rows = {(t.row.method, t.row.memory): t.row for t in planned(tmp_path, text)}
    shares = {key: row.memory_of_1f1b for key, row in rows.items()}
    assert [shares["greedy-v", memory] for memory in ("1p", "2p", "none")] == [0.5, 1, None]
    assert [shares["1f1b", memory] for memory in ("1p", "2p", "none")] == [1, 2, None]
    assert rows["greedy-v", "2p"].memory_limit == rows["1f1b", "1p"].memory_limit


@pytest.mark.parametrize(
    ("axis", "value", "small"),
    [("memory", "0.1p", 0), ("memory", "0.1x", 0), ("memory", "1", 1), ("memory_of_1f1b", "0.1", 0)],
)
def test_a_limit_below_one_activation_leaves_a_cell_empty(
    axis: str, value: str, small: int, tmp_path: Path
) -> None:
    quoted = value if axis == "memory_of_1f1b" or value.isdecimal() else f'"{value}"'
    head = 'instances = ["small.json"]\nmethods = ["list", "cpsat"]\n'
    with pytest.raises(
        InputError, match=rf":3: {axis} = .*: does not fit small: memory.limit"
    ):  # all are empty
        planned(tmp_path, f"{head}{axis} = [{quoted}]\n")
    axes = f'memory = [{quoted}, "2p"]' if axis == "memory" else f'{axis} = [{quoted}]\nmemory = ["2p"]'
    rows = [task.row for task in planned(tmp_path, f"{head}{axes}\n") if task.row.memory != "2p"]
    said = f"= {small}: must hold one forward activation: at least 2"
    assert [(row.state, row.status, row.cost, row.bound) for row in rows] == 2 * [
        ("done", "infeasible", None, None)
    ]
    assert all(said in str(row.reason) and row.memory_limit == small and row.work == 240 for row in rows)


def test_memory_of_files(tmp_path: Path) -> None:
    made = instances(tmp_path, 'memory = ["smallest", "none", "0.5x", 6]')
    assert [limit(i) for i in made] == [(4, 4), None, (4, 4), (6, 6)]


def test_an_instance_keeps_its_objective_unless_the_axis_says_another(tmp_path: Path) -> None:
    write_experiment(tmp_path)
    makespan = json.loads((tmp_path / "small.json").read_text()) | {"objective": "makespan"}
    (tmp_path / "makespan.json").write_text(json.dumps(makespan))
    text = 'instances = ["small.json", "makespan.json"]\nmethods = ["list"]\n'
    assert [t.row.objective for t in planned(tmp_path, text)] == ["device_span", "makespan"]
    both = planned(tmp_path, text + 'objectives = ["own", "device_span"]\n')
    solved = [json.loads(task.payload)["instance"]["objective"] for task in both]
    assert solved == [task.row.objective for task in both] == ["device_span", "makespan", "device_span"]


def test_communication(tmp_path: Path) -> None:
    made = instances(tmp_path, 'comm = ["0.5f", "3x", 7, "own"]')
    assert [i.comm(0, 1) for i in made] == [5, 3, 7, 1]


def test_sizes(tmp_path: Path) -> None:
    made = instances(tmp_path, 'devices = [2, 3]\nmicrobatches = ["3p", "own"]')
    assert [(i.devices, i.microbatches) for i in made] == [(2, 6), (2, 4), (3, 9), (3, 4)]


def test_uneven_stages_and_their_median_costs(tmp_path: Path) -> None:
    text = SMALL + 'uneven = [{}, { first = 0.5, last = 1.5 }]\ncosts = ["true", "median"]\n'
    tasks = [t for t in planned(tmp_path, text) if t.row.method == "list" and t.row.memory == "2p"]
    assert [(t.row.uneven, t.row.costs) for t in tasks] == [
        ("", "true"),
        ("first 0.5 last 1.5", "true"),
        ("first 0.5 last 1.5", "median"),
    ]  # of even stages the median costs are the true ones
    median = json.loads(tasks[2].payload)
    assert median["instance"]["forward"] == [5, 10, 10, 15]
    assert median["shown"]["forward"] == 10
    assert tasks[1].row.instance_hash == tasks[2].row.instance_hash
