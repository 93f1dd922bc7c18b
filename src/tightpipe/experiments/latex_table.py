"""Tables in LaTeX have the rules of booktabs, the best value of each row in bold, a caption and a label."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.files import write_text

_ESCAPED = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
    }
)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class LatexTable:
    """The content of a table as plain text, whose special characters are escaped when the table is written.

    Parameters
    ----------
    head
        Names of the columns, each once.
    body
        The rows, one text per column.
    compared
        Names of the columns that are compared in each row, by the numbers with which their texts begin.
        The smallest of these numbers is set in bold wherever it occurs, unless there is only one number.
    texts
        Number of columns, from the left, that hold words and are flush left. The others hold numbers and
        are flush right.
    caption
        The text above the table.
    """

    head: Sequence[str]
    body: Sequence[Sequence[str]]
    compared: Sequence[str]
    texts: int
    caption: str


def write_latex(table: LatexTable, path: str | Path, name: str | None = None) -> None:
    r"""Write a table as a LaTeX file that a paper reads with ``\input``.

    Parameters
    ----------
    table
        The table.
    path
        The file.
    name
        The part of the label after ``tab:``; None takes the file's name without its suffix. A character
        that a label should not have becomes a hyphen.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    label = re.sub(r"[^\w.:-]|_", "-", Path(path).stem if name is None else name)
    write_text(path, latex(table, f"tab:{label}"))


def latex(table: LatexTable, label: str) -> str:
    """Return the LaTeX source of a table; its first line is a comment that names the package needed."""
    import pandas as pd  # imported here, because its loading takes longer than most commands

    head = [name.translate(_ESCAPED) for name in table.head]
    body = [[cell.translate(_ESCAPED) for cell in row] for row in table.body]
    compared: list[Hashable] = [name.translate(_ESCAPED) for name in table.compared]
    style = pd.DataFrame(body, columns=head).style.hide(axis="index")
    text = style.apply(lambda row: _bold(list(row)), axis=1, subset=compared).to_latex(
        column_format="l" * table.texts + "r" * (len(head) - table.texts),
        caption=table.caption.translate(_ESCAPED),
        label=label,
        position="tbp",
        position_float="centering",
        hrules=True,
    )
    return f"% needs \\usepackage{{booktabs}}\n{text}"


def _bold(cells: Sequence[str]) -> list[str]:
    """Return the style of each cell of a row: bold if its number is the smallest of several, else empty."""
    found = [_NUMBER.match(cell) for cell in cells]
    values = [float(number[0]) if number else None for number in found]
    known = [value for value in values if value is not None]
    best = min(known) if len(known) > 1 else None
    return ["textbf:--rwrap;" if value is not None and value == best else "" for value in values]
