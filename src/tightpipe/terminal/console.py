"""What people see on stdout: tables, pairs, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ..core.summary import lines_of

MISSING = "-"


def show_json(data: Any) -> None:
    """Print one JSON object."""
    sys.stdout.write(json.dumps(data) + "\n")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; None is shown as a dash."""
    from rich.console import Console  # takes longer to load than most commands that need no table
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(MISSING if value is None else str(value) for value in row))
    # a pipe gets every column whole, whatever its width
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 400, highlight=False).print(table)


def show_pairs(pairs: dict[str, Any]) -> None:
    """Print one `key value` line each; None is left out."""
    print(lines_of(pairs))
