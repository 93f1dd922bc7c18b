"""Tables of Markdown as rows of cells, for the tests that hold pages to the code."""

from __future__ import annotations

import re


def tables(page: str) -> list[list[list[str]]]:
    """Return the tables of a page: the rows of each, the header first and the rule below it left out."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", page, flags=re.M)
    return [[_cells(line) for line in block.splitlines() if not line.startswith("| ---")] for block in blocks]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def codes(cell: str) -> list[str]:
    """Return what a cell has in backticks."""
    return re.findall(r"`([^`]+)`", cell)
