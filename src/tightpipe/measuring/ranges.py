"""Recordings, which every reader of traces returns: the named ranges of time of one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

Wanted = Callable[[str], bool]
"""Function that returns whether ranges of a name are needed. Readers drop all others to save memory."""


class Range(NamedTuple):
    """A named interval of a process's time, in nanoseconds of its own clock."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Recording:
    """The ranges that one process has recorded.

    Parameters
    ----------
    source
        Name of the file, with the process if the file has several; for the texts of errors.
    ranges
        The ranges of the wanted names, in any sequence.
    rank
        Rank of the process in its job; None if the file does not have it.
    """

    source: str
    ranges: tuple[Range, ...]
    rank: int | None = None
