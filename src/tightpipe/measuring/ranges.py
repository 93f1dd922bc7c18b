"""What every reader of traces returns: the named ranges of time that one process has recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

Wanted = Callable[[str], bool]
"""Whether a range of this name is needed; readers forget all others, so that a trace may be large."""


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
        The file, and the process where the file has several; errors name it.
    ranges
        The ranges of the wanted names, in any sequence.
    rank
        Rank of the process in its job, as far as the file says; None where it does not.
    """

    source: str
    ranges: tuple[Range, ...]
    rank: int | None = None
