"""Functions that print results on stdout, as a table, as pairs of key and value, or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ..core.printable import printable
from ..core.result_text import lines_of
from .standard_streams import styled

MISSING = "-"


def show_json(data: Any) -> None:
    """Print data as one JSON object on one line."""
    sys.stdout.write(json.dumps(data) + "\n")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; None is shown as a dash."""
    from rich.console import Console  # imported here because rich takes long to load
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(MISSING if value is None else escape(printable(str(value))) for value in row))
    # Where stdout is no terminal, e.g. a pipe, the table is as wide as its columns need.
    width = None if sys.stdout.isatty() else 400
    Console(file=styled(sys.stdout), width=width, highlight=False).print(table)


def show_pairs(pairs: dict[str, Any]) -> None:
    """Print a line with key and value for each pair; a value of None gets no line."""
    print(lines_of({key: value if value is None else printable(str(value)) for key, value in pairs.items()}))
