"""A grid is run into a store, and its rows become a table, a page, a figure and a table for a paper.

Every grid is run here: sweeps, comparisons, the realistic suite and the benchmark of exact solvers. Solves
that have ended are kept in the store, and are not run again by a run that was interrupted or that extends.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import InputError, StoppedError
from ...core.files import write_text
from ...core.tables import write_latex
from ...solving.ensure_compiled import compile_ahead
from ..sweep.executor import ExecutorContext
from ..sweep.experiment import FigureKind
from ..sweep.guarded_process import Limits
from ..sweep.row import Row
from ..sweep.runner import Watch, run_sweep
from ..sweep.store import Store
from ..sweep.task import Task, loops_of_payload
from .figure import write_figure
from .files import ROWS, STORE, mark_of, write_rows
from .summary import latex_table, page


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a study.

    Parameters
    ----------
    name
        The title of the page, and what the label of the table for a paper says.
    rows, store, page
        The CSV file of the rows, the store, and the page in Markdown.
    latex
        The table for a paper; None for none.
    figure
        The figure without its suffix.
    suffixes
        The suffixes with which the figure is written; ``csv`` is the data that it draws.
    """

    name: str
    rows: Path
    store: Path
    page: Path
    latex: Path | None
    figure: Path
    suffixes: tuple[str, ...]

    @property
    def mark(self) -> Path:
        """The file that is there until the run has finished and its files are written."""
        return mark_of(self.rows)


def files_in(folder: Path, name: str, figure: FigureKind | None) -> Files:
    """Return the files of a study in a folder of its own."""
    page, latex, suffixes = folder / "summary.md", folder / "table.tex", ("csv", "pdf", "png")
    return Files(name, folder / ROWS, folder / STORE, page, latex, folder / str(figure), suffixes)


def files_beside(rows: Path, latex: Path | None = None) -> Files:
    """Return the files of a study that lie beside the CSV file of its rows and are named like it."""
    stem = rows.with_suffix("")
    store, page = stem.with_suffix(".sqlite"), stem.with_suffix(".md")
    return Files(stem.name, rows, store, page, latex, stem, ("png",))


def enrol(
    store: Store, tasks: Sequence[Task], files: Files, *, extend: bool, retry_failed: bool
) -> Path | None:
    """Make the tasks the grid of the store, and return the copy of it if the grid begins anew.

    A grid that has finished begins anew, unless `extend` says that its solves stay, or `retry_failed` that
    those that failed are run again and there are any.
    """
    store.enrol(tasks)
    retried = store.retry_failed() if retry_failed else 0
    anew = not retried and not extend and not files.mark.exists()
    kept = store.begin_anew(tasks) if anew else None
    files.mark.touch()
    return kept


def run_grid(
    store: Store, executor: ExecutorContext, limits: Limits, files: Files, watch: Watch, *, local: bool = True
) -> list[Row]:
    """Run what is pending in a store, and return the rows, which are written also if a signal ends the run."""
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


def write_study(
    rows: Sequence[Row],
    files: Files,
    figure: FigureKind | None,
    baseline: str | None = None,
    caption: str | None = None,
) -> str:
    """Write page, figure and the table for a paper, and return the page."""
    picture = None if figure is None else f"{files.figure.name}.png"
    text = page(files.name, rows, picture, baseline)
    write_text(files.page, text)
    if files.latex is not None:
        write_latex(latex_table(files.name, rows, caption), files.latex, files.name)
    if figure is not None:
        write_figure(figure, rows, files.figure, files.suffixes)
    return text
