"""Tables are written as CSV, as Markdown, as plain text and as LaTeX.

A table in LaTeX has the rules of booktabs, the best value of each row in bold, a caption and a label.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .files import write_text

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
    """The content of a table as plain text; special characters are escaped when the table is written."""

    head: Sequence[str]  #: names of the columns, each once
    body: Sequence[Sequence[str]]  #: the rows, one text per column
    #: names of the columns that are compared in each row, by the numbers with which their texts begin. The
    #: smallest of these numbers is set in bold wherever it occurs, unless there is only one number.
    compared: Sequence[str]
    #: number of columns, from the left, that hold words and are flush left. The others hold numbers and are
    #: flush right.
    texts: int
    caption: str  #: the text above the table


def write_latex(table: LatexTable, path: str | Path, name: str | None = None) -> None:
    r"""Write a table as a LaTeX file that a paper reads with ``\input``.

    The label is ``tab:`` and `name`, or else the file's name without its suffix. A character that a label
    should not have becomes a hyphen.
    """
    label = re.sub(r"[^\w.:-]|_", "-", Path(path).stem if name is None else name)
    write_text(path, latex(table, f"tab:{label}"))


def latex(table: LatexTable, label: str) -> str:
    """Return LaTeX source of a table that shrinks to fit a page, after a comment with the packages needed."""
    compared = [name in table.compared for name in table.head]
    body = [_bold([cell.translate(_ESCAPED) for cell in row], compared) for row in table.body]
    columns = "l" * table.texts + "r" * (len(table.head) - table.texts)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,adjustbox}",
            r"\begin{table}[tbp]",
            r"\centering",
            rf"\caption{{{table.caption.translate(_ESCAPED)}}}",
            rf"\label{{{label}}}",
            r"\begin{adjustbox}{max width=\textwidth, max totalheight=0.85\textheight}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _latex_line(name.translate(_ESCAPED) for name in table.head),
            r"\midrule",
            *map(_latex_line, body),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{adjustbox}",
            r"\end{table}",
            "",
        ]
    )


def _latex_line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _bold(cells: Sequence[str], compared: Sequence[bool]) -> list[str]:
    """Return the cells of a row, with those in bold whose number is the smallest of several compared ones."""
    found = [_NUMBER.match(cell) if here else None for cell, here in zip(cells, compared, strict=True)]
    values = [float(number[0]) if number else None for number in found]
    known = [value for value in values if value is not None]
    best = min(known) if len(known) > 1 else None
    return [
        rf"\textbf{{{cell}}}" if value is not None and value == best else cell
        for cell, value in zip(cells, values, strict=True)
    ]


def csv_text(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return the content of a CSV file with the names of the columns and the rows; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def markdown_text(head: Sequence[str], body: Iterable[Sequence[object]], left: Collection[str] = ()) -> str:
    """Return a Markdown table without a last line break; columns in `left` are flush left, others right."""
    rules = ["---" if name in left else "---:" for name in head]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in [head, rules, *body])


def aligned_text(head: Sequence[str], body: Sequence[Sequence[str]], left: Collection[str] = ()) -> str:
    """Return a table for a terminal: two spaces between columns, and a line of dashes below the head.

    A name in `head` may have several lines. Columns in `left` are flush left, the others flush right.
    """
    names = [name.split("\n") for name in head]
    tallest = max(map(len, names))
    tops = [[name[line] if line < len(name) else "" for name in names] for line in range(tallest)]
    widths = [max(map(len, column)) for column in zip(*tops, *body, strict=True)]
    lines = [*tops, ["-" * width for width in widths], *body]
    return "\n".join(
        "  ".join(
            f"{cell:{'<' if name in left else '>'}{width}}"
            for name, cell, width in zip(head, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )
