"""A small study's folder, solved in the tests' own process."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from experiments.sweeps import write_experiment

from tightpipe import solve
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import tasks_of
from tightpipe.experiments.store import open_store
from tightpipe.experiments.study import STORE
from tightpipe.experiments.task import pack
from tightpipe.model.instance_file import instance_from_dict

EXPERIMENT = """\
instances = ["small.json"]
memory = ["own", "3p"]
methods = ["v-half", "greedy-v", "cpsat"]
time_limits = [0.5]
"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
_COLUMNS = ("cost", "bubble_rate", "bound", "gap", "peak_memory", "seconds")


def make_study(folder: Path) -> Path:
    """Make the folder of a study with six rows and a figure."""
    experiment = write_experiment(folder, EXPERIMENT, "small.toml")
    results = folder / "small_study"
    results.mkdir()
    with open_store(results / STORE) as store:
        store.enrol(tasks_of(load_experiment(experiment), experiment))
        while (task := store.claim("the test")) is not None:
            instance = instance_from_dict(json.loads(task.payload)["instance"])
            result = solve(instance, task.row.method, time_limit=task.row.time_limit, workers=1)
            values = {name: getattr(result, name) for name in _COLUMNS}
            assert result.schedule is not None
            packed = pack(result.schedule, result.method, result.bound)
            done = {"state": "done", "status": str(result.status), **values}
            assert store.finish(task.row.key, "the test", done, packed)
    (results / "bubble_rate.png").write_bytes(base64.b64decode(PIXEL))
    return results
