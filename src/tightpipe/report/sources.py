"""Reports are made from the folder of a study, or from schedule files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..core import metrics
from ..core.instance import Objective
from ..core.instance_file import read_json
from ..core.printable import printable
from ..core.schedule_file import MEASURED, ScheduleFile
from ..experiments.axes import OWN
from ..experiments.study import Study, load_study
from ..experiments.task import Row
from ..solving.methods import is_heuristic
from .entry import Entry, Report
from .figures import load_figures


def report_of_study(folder: Path) -> Report:
    """Return the report of the study that a sweep has written into a folder.

    Raises
    ------
    InputError
        If the folder holds no study, or the study cannot be read.
    """
    study = load_study(folder)
    entries = tuple(_entry_of_row(study, row) for row in study.rows)
    title = folder.resolve().name.replace("_", " ")
    return Report(title, _conditions(folder), entries, load_figures(folder))


def report_of_files(files: Sequence[tuple[str, ScheduleFile]]) -> Report:
    """Return the report that compares validated schedule files, each given with its path."""
    entries = tuple(_entry_of_file(Path(path), content) for path, content in files)
    return Report(", ".join(printable(Path(path).stem) for path, _ in files), "", entries)


def _entry_of_row(study: Study, row: Row) -> Entry:
    objective = "" if row.objective == Objective.DEVICE_SPAN else row.objective
    changes = (change for change in (row.memory, row.comm, row.uneven, objective) if change != OWN)
    parts = (row.problem, *changes, row.method)
    values = {**asdict(row), "reason": row.reason if row.cost is None else None}
    return Entry(
        values,
        " · ".join(part for part in parts if part),
        study.schedule(row),
        row.method,
        row.bound,
        problem=row.instance_hash,
        reference=is_heuristic(row.method),
    )


def _entry_of_file(path: Path, content: ScheduleFile) -> Entry:
    schedule, name = content.schedule, printable(path.stem)
    instance, cost, bound = schedule.instance, metrics.cost(schedule), content.bound
    values = {
        "schedule": name,
        "method": content.method,
        "devices": instance.devices,
        "microbatches": instance.microbatches,
        "placement": instance.placement.name,
        "objective": str(instance.objective),
        "cost": cost,
        "bubble_rate": metrics.bubble_rate(schedule),
        "imbalance": metrics.imbalance(metrics.busy_times(schedule)),
        "bound": bound,
        "gap": None if bound is None else (cost - bound) / cost,
        "peak_memory": int(metrics.peak_memory(schedule).max()),
    }
    label = name if content.method in (None, MEASURED) else str(content.method)
    return Entry(values, label, schedule, content.method, bound)


def _conditions(folder: Path) -> str:
    """Return a line with machine, engine and versions of a study; empty without ``environment.json``."""
    path = folder / "environment.json"
    if not path.exists():
        return ""
    known = read_json(path)
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in known.items())
