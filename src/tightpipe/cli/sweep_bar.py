"""The progress of a sweep is shown on stderr: as a bar in a terminal, else as one line per solve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from ..core.instance import Objective
from ..core.printable import printable
from ..experiments.axes import OWN
from ..experiments.guarded_process import Outcome
from ..experiments.store import Store, Tally
from ..experiments.task import Row, Task, Value
from ..terminal.standard_streams import styled


def percent(gap: Value) -> str:
    """Return a gap as text in percent, e.g. ``1.25%``; a dash if the gap is unknown."""
    return "-" if gap is None else f"{float(gap):.2%}"


def duration(seconds: float) -> str:
    """Return a time in seconds as a short text, e.g. ``4 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def title(row: Row) -> str:
    """Return a short name for a solve, made of its problem, its changes and its options."""
    words = [row.problem, f"{row.p}x{row.n}", row.memory, row.comm, row.uneven, _discount(row), row.name]
    if row.objective != Objective.DEVICE_SPAN:  # the usual one goes without saying
        words.append(f"for {row.objective}")
    if row.costs != "true":
        words.append(f"{row.costs} costs")
    if row.warm_start is not None:
        words.append(f"from {row.warm_start}")
    if row.time_limit is not None:
        words += [f"{row.time_limit:g} s", f"seed {row.seed}"]
    return printable(" ".join(word for word in words if word and word != "own"))


def _discount(row: Row) -> str:
    return "" if row.discount == OWN else f"discount {row.discount}"


class _SweepBar:
    def __init__(self, store: Store, quiet: bool) -> None:
        self._store, self._quiet = store, quiet
        self._console = Console(file=styled(sys.stderr))
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._progress.add_task("")

    def __enter__(self) -> _SweepBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def watch(self, task: Task, outcome: Outcome | None, solves_at_once: int) -> None:
        """Show that a task has ended with `outcome`, or, if `outcome` is None, that the task has begun.

        The estimate of the time left is divided by `solves_at_once`, the number of solves that run together.
        """
        tally = self._store.tally()
        if outcome is not None and not self._quiet:
            self._console.print(_line(task, outcome, tally), highlight=False, markup=False, soft_wrap=True)
        left = duration(tally.seconds_left / max(1, solves_at_once))
        text = (
            f"{tally.running} running, {tally.failed} failed, gap best {percent(tally.best_gap)} "
            f"mean {percent(tally.mean_gap)}, at most {left} left"
        )
        self._progress.update(
            self._task, completed=tally.done + tally.failed, total=tally.total, description=text
        )


def _line(task: Task, outcome: Outcome, tally: Tally) -> str:
    values = outcome.values
    if values["state"] == "failed":
        said = f"failed: {values['error']}"
    elif values["cost"] is None:
        said = f"{values['status']}: {values['reason']}"
    else:
        said = f"{values['status']}, cost {values['cost']}, gap {percent(values['gap'])}"
    return f"[{tally.done + tally.failed}/{tally.total}] {title(task.row)}: {printable(said)}"


@contextmanager
def sweep_bar(store: Store, quiet: bool) -> Iterator[_SweepBar]:
    """Show the progress of a sweep on stderr until the `with` block ends; if `quiet`, show nothing."""
    with _SweepBar(store, quiet) as bar:
        yield bar
