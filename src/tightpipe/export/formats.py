"""The export targets by name, and the functions that write and read their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.files import read_text, write_text
from ..core.schedule import Order, Schedule
from .chrome_trace import CHROME_TRACE
from .csv_table import CSV
from .exportable import check_exportable
from .node_lists import COLOSSALAI_JSON, MEGATRON_JSON
from .target import Target, check_options
from .torch_csv import TORCH_CSV

EXPORTS: dict[str, Target] = {
    target.name: target for target in (TORCH_CSV, MEGATRON_JSON, COLOSSALAI_JSON, CHROME_TRACE, CSV)
}
"""The targets by name."""


def export(schedule: Schedule, target: str, path: str | Path, **options: Any) -> None:
    """Validate a schedule and write it as a file of another program.

    Parameters
    ----------
    schedule
        Schedule to write.
    target
        Name of the file format in `EXPORTS`.
    path
        File to write.
    options
        Options of the target, e.g. ``merge=True`` for ``torch-csv``.

    Raises
    ------
    DeadlockError
        If operations wait for each other in a circle; the message names them.
    InputError
        If the schedule is invalid, the other program cannot run it, the target or an option is unknown, or
        the file cannot be written.
    """
    write_text(path, export_text(schedule, target, **options))


def export_text(schedule: Schedule, target: str, **options: Any) -> str:
    """Return the text that `export` writes; raise errors as `export` does."""
    chosen = _target(target)
    check_options(target, chosen.options, options)
    check_exportable(schedule)
    prepared = chosen.prepare(schedule, **options)
    text = chosen.write(prepared, **options)
    if chosen.read(text).to_slots() != prepared.order.to_slots():
        raise AssertionError(f"{target} does not read back as it was written")
    return text


def import_order(path: str | Path, target: str) -> Order:
    """Return the order of an exported file.

    Raises
    ------
    InputError
        If the target is unknown or the file is not of its format.
    """
    chosen = _target(target)
    try:
        return chosen.read(read_text(path))
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def _target(name: str) -> Target:
    if name not in EXPORTS:
        raise InputError(f"must be one of {', '.join(EXPORTS)}", key="target", value=name)
    return EXPORTS[name]
