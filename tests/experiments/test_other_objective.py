"""Sweeps over both objectives: a search for the best span also starts from the schedule for the makespan."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from experiments.sweeps import write_experiment

from tightpipe import Instance, Schedule, retime, solve
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import local_executor, run_sweep, tasks_of
from tightpipe.experiments.guarded_process import Limits
from tightpipe.experiments.store import Store
from tightpipe.experiments.task import Row, Task, pack
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import cost

BOTH = """\
instances = ["small.json"]
devices = [3]
microbatches = [6]
memory = [9]
methods = ["list", "improve"]
objectives = ["device_span", "makespan"]
"""


def planned(folder: Path, *more: str) -> list[Task]:
    path = write_experiment(folder, "\n".join([BOTH, *more]))
    return tasks_of(load_experiment(path), path)


def the(tasks: list[Task], objective: str) -> Task:
    (found,) = (t for t in tasks if (t.row.method, t.row.objective) == ("improve", objective))
    return found


def test_a_search_for_the_span_follows_the_same_search_for_the_makespan(tmp_path: Path) -> None:
    tasks = planned(tmp_path, "seeds = [0, 1]", "time_limits = [1, 2]", 'costs = ["true", "median"]')
    by_key = {task.row.key: task for task in tasks}
    following = [task for task in tasks if task.after]
    searches = [t for t in tasks if t.row.method == "improve" and t.row.objective == "device_span"]
    assert following == searches != []
    for task in following:
        assert task.row.warm_start == "best+makespan"
        assert len(task.after) == 1
        other = by_key[task.after[0]].row
        assert other.warm_start == "best"
        assert as_the_other(task.row) == as_the_other(other)


def as_the_other(row: Row) -> Row:
    return replace(row, key="", instance_hash="", objective="", warm_start="")


@pytest.mark.parametrize(
    "more", ['warm_starts = ["none", "list"]', 'warm_starts = ["list"]'], ids=["none", "heuristic"]
)
def test_a_search_whose_start_the_experiment_names_gets_no_other(tmp_path: Path, more: str) -> None:
    assert all(task.after == () for task in planned(tmp_path, more))


def test_a_search_for_the_span_waits_for_the_makespan_of_any_sweep(tmp_path: Path) -> None:
    tasks = planned(tmp_path)
    with closing(Store(tmp_path / "s.sqlite")) as store:
        store.enrol(tasks)
        claimed = []
        while (task := store.claim("a")) is not None:
            claimed.append((task.row.method, task.row.objective))
        assert claimed == [
            ("list", "device_span"),
            ("list", "makespan"),
            ("improve", "makespan"),
        ]
        assert store.finish(the(tasks, "makespan").row.key, "a", {"state": "failed"}, None)
        last = store.claim("a")
        assert last is not None
        assert last.row.key == the(tasks, "device_span").row.key


def test_the_span_of_a_sweep_never_exceeds_its_makespan(tmp_path: Path) -> None:
    """Without time for a search, only the schedule that was found for the makespan beats the heuristics."""
    tasks = planned(tmp_path, "time_limits = [0.001]")
    good = solve(the(tasks, "makespan").instance, "improve", effort=1.0, workers=1).schedule
    assert isinstance(good, Schedule)
    spans: Instance = replace(good.instance, objective=Objective.DEVICE_SPAN)
    heuristics = solve(spans, "improve", time_limit=0).schedule
    assert heuristics is not None
    assert cost(retime(spans, good.order)) < cost(heuristics)
    with closing(Store(tmp_path / "store.sqlite")) as store:
        store.enrol(tasks)
        while (task := store.claim("by hand")) is not None:
            schedule = pack(good, "improve", None) if task.row.method == "improve" else None
            store.finish(task.row.key, "by hand", {"state": "done", "cost": cost(good)}, schedule)
            if schedule is not None:
                break
        run_sweep(store, local_executor(1), Limits(120.0, 2**33, 1), lambda *_: None)
        (row,) = (row for row in store.rows() if row.key == the(tasks, "device_span").row.key)
    assert row.cost == cost(retime(spans, good.order))
    assert json.loads(the(tasks, "device_span").payload)["warm_start"] == "best"
