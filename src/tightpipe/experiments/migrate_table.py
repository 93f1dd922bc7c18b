"""A CSV table of an earlier version gets the columns of this version."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path

from ..core.errors import InputError
from ..core.files import read_text, write_text
from .results_table import Cells, Form, cell_text
from .sweep.row import renamed


def migrate_table(path: Path, form: Form, lacking: Callable[[Cells], Mapping[str, object]]) -> int:
    """Rewrite a CSV file with the columns of `form`; the old file is kept with ``.bak`` added to its name.

    Parameters
    ----------
    path
        The CSV file.
    form
        The form whose columns the file gets.
    lacking
        Function that returns, by column, the values of a row in the columns that earlier versions lack. A
        value that is not known is None.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    InputError
        If the file cannot be read, or is not the table of an earlier version.
    """
    content, columns = read_text(path), list(form.columns)
    rows = list(map(renamed, csv.DictReader(io.StringIO(content))))
    try:
        filled = [{**lacking(row), **row} for row in rows]
        lines = [columns, *([cell_text(row[column]) for column in columns] for row in filled)]
        if not rows or any(len(row) != len(columns) for row in filled):
            raise InputError("it has other columns" if rows else "it has no rows")
    except (KeyError, ValueError) as error:
        raise InputError(f"is not the table of an earlier version: {error}", source=str(path)) from None
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    write_text(path.with_name(f"{path.name}.bak"), content)
    write_text(path, text.getvalue())
    return len(rows)
