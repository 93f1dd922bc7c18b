"""A grid is run into a store, and its rows become a table, a page, a figure and a table for a paper.

Every grid is run here: sweeps, comparisons, the realistic suite and the benchmark of exact solvers. Solves
that have ended are kept in the store, and are not run again by a run that was interrupted or that extends.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path

import psutil

from .. import drawing
from ..base.cores import usable_cores
from ..base.errors import InputError, StoppedError, about_file, printable
from ..base.files import csv_rows, read_text, write_text
from ..base.sources import engine_version
from ..base.tables import csv_text, write_latex
from ..kernels.compiled import compile_ahead
from ..model.schedule import Schedule
from . import figure_data
from .experiment import Experiment, FigureKind
from .figure_data import Point
from .grid import ExecutorContext, Watch, combine, local_executor, run_sweep
from .guarded_process import Limits
from .store import Store, open_store
from .summary import latex_table, page
from .task import COLUMNS, Row, Task, loops_of_payload, row_from_text, unpack

STORE = "store.sqlite"
ROWS = "rows.csv"
UNFINISHED = ".unfinished"


def mark_of(rows: Path) -> Path:
    """Return the path of the mark that lies beside a study's rows until the study has finished."""
    return rows.with_name(f"{rows.name}{UNFINISHED}")


@dataclass(frozen=True, slots=True)
class Study:
    """The results of a sweep."""

    folder: Path  #: the sweep's folder, e.g. ``results/memory``
    rows: tuple[Row, ...]  #: all rows in the order of the experiment's grid

    def schedule(self, row: Row) -> Schedule | None:
        """Return the schedule of a row; None if the solve found none, or the folder has no store."""
        path = self.folder / STORE
        if not path.exists():
            return None
        with open_store(path) as store:
            packed = store.schedule(row.key)
        return None if packed is None else unpack(packed)


def load_study(folder: str | Path) -> Study:
    """Read the rows of a sweep from its store or, if the folder has none, from ``rows.csv``.

    Raise an InputError if the folder holds neither file, or the file cannot be read.
    """
    folder = Path(folder)
    if (folder / STORE).exists():
        with open_store(folder / STORE) as store:
            return Study(folder, tuple(store.rows()))
    if not (folder / ROWS).exists():
        raise InputError(f"holds neither {STORE} nor {ROWS}: no sweep was run into it", source=str(folder))
    return Study(folder, read_rows(folder / ROWS))


def read_rows(path: Path) -> tuple[Row, ...]:
    """Read the rows of a CSV file; raise an InputError with line and column if it is no such file."""
    with about_file(path):
        rows = [(line, row) for line, row in csv_rows(read_text(path)) if row]
        if not rows or tuple(rows[0][1]) != COLUMNS:
            raise InputError(
                "has other columns than this version reads; move it away, and run the solves anew"
            )
        return tuple(row_from_text(dict(zip_longest(COLUMNS, row)), line) for line, row in rows[1:])


_PACKAGES = ("ortools", "highspy", "pulp", "numba", "numpy")


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a CSV file."""
    write_text(path, csv_text(COLUMNS, [astuple(row) for row in rows]))


def write_conditions(experiment: str | Path, folder: Path) -> None:
    """Write the experiment of a sweep and a description of the machine into a folder."""
    write_text(folder / "experiment.toml", read_text(experiment))
    environment = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": usable_cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": os.getloadavg()[2],  # over 15 minutes: it tells whether the cores do other work too
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "engine": engine_version(),
        **{package: version(package) for package in _PACKAGES},
    }
    write_text(folder / "environment.json", json.dumps(environment, indent=2) + "\n")


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a study."""

    name: str  #: the title of the page
    label: str  #: the label of the table for a paper, without ``tab:``
    rows: Path  #: a CSV file
    store: Path
    page: Path  #: in Markdown
    latex: Path | None  #: the table for a paper
    figure: Path  #: without its suffix
    suffixes: tuple[str, ...]  #: those of the figure; ``csv`` is the data that it draws

    @property
    def mark(self) -> Path:
        """The file that is there until the run has finished and its files are written."""
        return mark_of(self.rows)


def files_in(folder: Path, name: str, figure: FigureKind | None) -> Files:
    """Return the files of a study in a folder of its own."""
    rows, store, summary, table = (folder / file for file in (ROWS, STORE, "summary.md", "table.tex"))
    suffixes = ("csv", "pdf", "png")
    return Files(name, name, rows, store, summary, table, folder / str(figure), suffixes)


def files_beside(rows: Path, latex: Path | None = None) -> Files:
    """Return the files of a study that lie beside the CSV file of its rows and are named like it."""
    stem = rows.with_suffix("")
    store, summary = (stem.with_name(f"{stem.name}{suffix}") for suffix in (".sqlite", ".md"))
    return Files(printable(stem.name), (latex or rows).stem, rows, store, summary, latex, stem, ("png",))


def enrol(
    store: Store, tasks: Sequence[Task], files: Files, *, extend: bool, retry_failed: bool
) -> Path | None:
    """Make the tasks the grid of the store, and return the copy of it if the grid begins anew."""
    store.enrol(tasks)
    retried = store.retry_failed() if retry_failed else 0
    anew = not retried and not extend and not files.mark.exists()
    kept = store.begin_anew(tasks) if anew else None
    files.mark.touch()
    return kept


def run_grid(
    store: Store, executor: ExecutorContext, limits: Limits, files: Files, watch: Watch, *, local: bool = True
) -> list[Row]:
    """Run what is pending in a store, and return the rows; they are written also if a signal ends it."""
    if local:  # here, so that no solve has to wait for the compiler
        compile_ahead(group for payload in store.pending() for group in loops_of_payload(payload))
    try:
        run_sweep(store, executor, limits, watch)
    except (KeyboardInterrupt, StoppedError):
        with suppress(InputError):  # a full disk, which may have ended the sweep, has no room for the rows
            write_rows(store.rows(), files.rows)
        raise
    rows = store.rows()
    write_rows(rows, files.rows)
    return rows


def sweep(experiment: Experiment, folder: str | Path, *, at_once: int | None = None) -> Study:
    """Run an experiment into a folder, as the command ``sweep --extend`` does, and return its rows.

    Parameters
    ----------
    experiment
        The experiment.
    folder
        The folder, whose name is that of the study. Solves that are done there are not run again.
    at_once
        Number of solves that run at once; None means as many as fit the cores.

    Raises
    ------
    InputError
        If a combination of the axes makes no instance, or a file cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = files_in(folder, folder.name, experiment.figure)
    limits = Limits(experiment.hard_limit, experiment.memory_cap, experiment.threads)
    with open_store(files.store) as store:
        enrol(store, combine(experiment), files, extend=True, retry_failed=False)
        rows = run_grid(store, local_executor(at_once), limits, files, lambda *_: None)
    write_study(rows, files, experiment.figure, experiment.baseline)
    files.mark.unlink(missing_ok=True)
    return Study(folder, tuple(rows))


def write_study(
    rows: Sequence[Row],
    files: Files,
    figure: FigureKind | None,
    baseline: str | None = None,
    caption: str | None = None,
) -> str:
    """Write page, figure and the table for a paper, and return the page."""
    picture = None if figure is None else printable(f"{files.figure.name}.png")
    text = page(files.name, rows, picture, baseline)
    write_text(files.page, text)
    if files.latex is not None:
        write_latex(latex_table(files.name, rows, caption), files.latex, files.label)
    if figure is not None:
        write_figure(figure, rows, files.figure, files.suffixes)
    return text


_Points = Callable[[Sequence[Row]], list[Point]]


def _against(points: _Points, x_label: str, looser: bool | None) -> tuple[_Points, Callable[..., None]]:
    """Return the two functions of a figure of bubble rates against what the axis `x_label` shows."""
    return points, partial(drawing.draw_frontier, x_label=x_label, looser=looser)


_AVOIDED = f"share of the avoidable bubble of {figure_data.BASELINE} (above the best bound) that is avoided"
_FIGURES: dict[FigureKind, tuple[_Points, Callable[..., None]]] = {
    FigureKind.SETTINGS: (figure_data.rated_points, drawing.draw_bubble_rates),
    FigureKind.MEMORY: _against(figure_data.memory_points, "memory limit / (p activations)", True),
    FigureKind.EQUAL_MEMORY: _against(
        figure_data.equal_memory_points, "memory limit / peak memory of 1F1B", True
    ),
    FigureKind.DISCOUNT: _against(figure_data.discount_points, "discount of a fused backward / %", None),
    FigureKind.FRONTIER: _against(figure_data.frontier_points, "memory limit / (p activations)", None),
    FigureKind.COMM: _against(figure_data.comm_points, "communication / forward time", False),
    FigureKind.AVOIDED: (figure_data.avoided_points, partial(drawing.draw_shares, x_label=_AVOIDED)),
    FigureKind.UNEVEN: (partial(figure_data.rated_points, shown="uneven"), drawing.draw_bubble_rates),
    FigureKind.ANYTIME: (figure_data.anytime_points, drawing.draw_gap_over_time),
}
"""For each kind of figure the function that makes its data of rows, and the one that draws them to a path."""


def check_figure(kind: FigureKind, rows: Sequence[Row]) -> None:
    """Raise an InputError if the figure cannot show the rows, which need not have been solved."""
    _FIGURES[kind][0](rows)


def write_figure(kind: FigureKind, rows: Sequence[Row], stem: Path, suffixes: Sequence[str]) -> None:
    """Draw the rows whose solves are done to the path `stem` with each suffix, if any is done."""
    points, draw = _FIGURES[kind]
    drawn = points([row for row in rows if row.state == "done"])
    for suffix in suffixes if drawn else ():
        path = stem.with_name(f"{stem.name}.{suffix}")
        if suffix == "csv":
            write_text(path, csv_text(drawn[0], [point.values() for point in drawn]))
        else:
            draw(drawn, path=path)
