"""Tables in LaTeX, read back."""

from __future__ import annotations

import re


def cells_of(text: str) -> list[list[str]]:
    """Head and rows, which are the lines that end in two backslashes."""
    lines = [line for line in text.splitlines() if line.endswith(" \\\\")]
    return [re.split(r" (?<!\\)& ", line.removesuffix(" \\\\")) for line in lines]
