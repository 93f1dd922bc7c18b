"""A report consists of entries and figures, made from the folder of a study or from schedule files."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..base.errors import printable
from ..base.files import read_json
from ..experiments.axes import OWN
from ..experiments.study import Study, load_study
from ..experiments.task import Row
from ..model import metrics
from ..model.costs import Objective
from ..model.result import other_costs
from ..model.schedule import Schedule
from ..model.schedule_file import MEASURED, ScheduleFile
from ..registry.methods import is_heuristic

Value = str | int | float | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the summary table, with its schedule.

    Charts of one problem are drawn beneath each other for comparison; charts without a problem (empty) are
    all drawn together.
    """

    values: Mapping[str, Value]  #: by the key of their column
    label: str  #: name of the schedule on the page
    schedule: Schedule | None  #: valid; None if none was found
    method: str | None = None  #: that made the schedule
    bound: int | None = None  #: proven, in ticks
    problem: str = ""  #: that the schedule solves
    reference: bool = False  #: whether a heuristic made it, with which others of the problem are compared


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a page: its title, a line on the conditions of the computation, entries and figures."""

    title: str
    conditions: str
    entries: tuple[Entry, ...]
    figures: tuple[Figure, ...] = ()


_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with its name; `source` is a data URI, which contains the picture."""

    name: str
    source: str


def load_figures(folder: Path) -> tuple[Figure, ...]:
    """Return the PNG and SVG pictures of a folder, sorted by name; if a name has both, only the PNG."""
    chosen = {path.stem: path for suffix in (".svg", ".png") for path in sorted(folder.glob(f"*{suffix}"))}
    return tuple(_figure(chosen[stem]) for stem in sorted(chosen))


def _figure(path: Path) -> Figure:
    words = path.stem.replace("_", " ").replace("-", " ").strip()
    content = b64encode(path.read_bytes()).decode()
    return Figure(words[:1].upper() + words[1:], f"data:{_TYPES[path.suffix]};base64,{content}")


_RATES = ("bubble_rate", "imbalance", "gap")
_NEVER = (  # these identify a row, repeat another column, or stand in the page's line of conditions
    *("key", "instance_hash", "trace", "state", "attempts", "finished_at", "host", "cores", "threads"),
    *("comm_ticks", "memory_limit", "work", "bubble", *map(str, Objective)),
    *("engine", "ortools_version", "python_version"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    key: str  #: of its values in `Entry.values`
    title: str
    kind: str  #: ``text``, ``number`` or ``rate``: how the page writes the values


def split_columns(entries: Sequence[Entry]) -> tuple[list[Column], list[tuple[str, str]]]:
    """Return the columns in which entries differ, and what the entries have in common."""
    keys = [key for key in (entries[0].values if entries else {}) if key not in _NEVER]
    shown: list[Column] = []
    same: list[tuple[str, str]] = []
    for key in keys:
        values = [entry.values.get(key) for entry in entries]
        if len(entries) == 1 or len(set(values)) > 1:
            shown.append(Column(key, key.replace("_", " "), _kind(key, values)))
        elif values[0] not in (None, ""):
            same.append((key.replace("_", " "), _text(key, values[0])))
    return shown, same


def _text(key: str, value: Value) -> str:
    """Return a value as the page's script `format.js` writes it in the table; a rate becomes a percentage."""
    if isinstance(value, float):
        return f"{100 * value:.2f} %" if key in _RATES else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _kind(key: str, values: Sequence[Value]) -> str:
    known = [value for value in values if value is not None]
    numbers = bool(known) and all(isinstance(value, int | float) for value in known)
    if not numbers:
        return "text"
    return "rate" if key in _RATES else "number"


def report_of_study(folder: Path) -> Report:
    """Return the report of the study that a sweep has written into a folder.

    Raise an InputError if the folder holds no study, or the study cannot be read.
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
    axes = row.memory, row.comm, row.uneven, row.offload, row.objective
    changes = (change for change in axes if change != OWN)
    parts = (row.problem, *changes, row.method)
    schedule = study.schedule(row)
    values = {**asdict(row), "reason": row.reason if row.cost is None else None}
    values["other_costs"] = other_costs(schedule) if schedule is not None else None
    return Entry(
        values,
        " · ".join(part for part in parts if part),
        schedule,
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
        "other_costs": other_costs(schedule),
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
