"""A CSV table of results keeps only the rows of one engine.

An engine is a version of the code that finds schedules and proves bounds. If a table had rows of two engines,
they would be compared as if the same code had made them.
"""

from __future__ import annotations

import csv
import io
from collections import Counter

from ..core.tables import csv_text

COLUMN = "engine"
"""The column that names the engine of a row; see `tightpipe.core.engine_version`."""


def of_one_engine(content: str, engine: str) -> tuple[str, Counter[str]]:
    """Return a CSV text with only the rows of `engine`, and the number of rows of each other engine."""
    reader = csv.DictReader(io.StringIO(content))
    rows = list(reader)
    others = Counter(row[COLUMN] for row in rows if row[COLUMN] != engine)
    kept = [row.values() for row in rows if row[COLUMN] == engine]
    return csv_text(reader.fieldnames or (), kept), others
