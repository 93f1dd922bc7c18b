r"""Records in text logs are found behind whatever loggers and launchers put before their lines.

A record is a message of several lines. A logger puts its prefix before the first of them only
(``INFO:megatron.core.timers:``), a launcher puts its own before every line (``[default0]:`` of torchrun,
``0: `` of srun, ``worker-1: `` of pdsh, a time stamp), and the lines of several processes may come mixed. No
list of prefixes would be complete. So a reader describes the lines by patterns that match up to the end of
the line, and what stands before a match is the prefix, whatever it is.

A line belongs to the last record before it whose first line begins with the prefix of this line; times in
prefixes count as equal. A line for which there is no such record is astray. It comes from another process, or
the prefixes do not tell processes apart. The reader decides this for each record: if the record is not whole
by this rule, all lines up to the first line of the next record belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

Record = list[re.Match[str]]
"""The matches of the lines of one record, beginning with its first line."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TIME = re.compile(
    r"(?:\s*(?:"
    r"\d{4}[-/.]\d\d[-/.]\d\d"  # a date
    r"|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"  # a time of day
    r"|(?<![\d.])\d+\.\d+(?![\d.])"  # seconds, but not the numbers of an address
    r"|(?<!\d)\d{10,19}(?!\d)"  # seconds or parts of them since 1970
    r")[TZ]?)+",
    re.ASCII,
)
_COMPARED = 256  # characters of a prefix that count


class _Line(NamedTuple):
    """A line of a log with content: its prefix with all times masked, and the match of the content."""

    prefix: str
    content: re.Match[str]
    begins: bool


class _Group(NamedTuple):
    """A first line with what may belong to it: by the prefixes, or as what follows before the next record."""

    record: Record
    astray: Record
    following: Record


def log_records(
    text: str, first: re.Pattern[str], further: re.Pattern[str], is_whole: Callable[[Record, Record], bool]
) -> list[Record]:
    """Return the records of a log, in the sequence of their first lines.

    Parameters
    ----------
    text
        The log.
    first, further
        Patterns of the content of a record's first line and of its other lines. Each is searched in a line,
        without white space at its end, and must end with ``$``. What stands before the match is the prefix.
    is_whole
        Function of a record by prefixes, and of the lines astray before the next record. It returns whether
        the record has all that it needs and nothing twice, and none of the lines astray can belong to it.
    """
    found = []
    for group in _groups(_lines(text, first, further)):
        by_prefix = is_whole(group.record, group.astray)
        found.append(group.record if by_prefix else group.following)
    return found


def _lines(text: str, first: re.Pattern[str], further: re.Pattern[str]) -> Iterator[_Line]:
    """Yield the lines of a log that have content."""
    for line in _COLOUR.sub("", text).splitlines():
        plain = line.rstrip()
        begin = first.search(plain)
        if match := begin or further.search(plain):
            prefix = _TIME.sub("#", plain[: match.start()][:_COMPARED])
            yield _Line(prefix, match, begin is not None)


def _groups(lines: Iterable[_Line]) -> list[_Group]:
    groups: list[_Group] = []
    latest: dict[str, _Group] = {}  # by each text with which the first line of a record begins
    for prefix, content, begins in lines:
        if begins:
            groups.append(_Group([content], [], [content]))
            latest |= dict.fromkeys((prefix[:k] for k in range(len(prefix) + 1)), groups[-1])
        elif groups:
            owner = latest.get(prefix.rstrip())
            (groups[-1].astray if owner is None else owner.record).append(content)
            groups[-1].following.append(content)
    return groups
