"""Readers of profiles from files that training has written: traces of PyTorch, logs of zero-bubble runs.

In a log, the profile is a record: a message of several lines. `log_records` finds records behind whatever
loggers and launchers put before their lines. A logger puts its prefix before the first line only
(``INFO:megatron.core.timers:``), a launcher puts its own before every line (``[default0]:`` of torchrun, ``0:
`` of srun, ``worker-1: `` of pdsh, a time stamp), and the lines of several processes may come mixed. No list
of prefixes would be complete. So a reader describes the lines by patterns that match up to the end of the
line, and what stands before a match is the prefix, whatever it is.

A line belongs to the last record before it whose first line begins with the prefix of this line; times in
prefixes count as equal. A line for which there is no such record is astray. It comes from another process, or
the prefixes do not tell processes apart. The reader decides this for each record: if the record is not whole
by this rule, all lines up to the first line of the next record belong to it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import InputError
from ..model.placement import Placement
from .profile_table import KINDS, Profile, Samples, check_time, make_profile
from .trace_events import EVENTS, opened, trace_entries

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

    - `first`, `further`: patterns of the content of a record's first line and of its other lines. Each is
      searched in a line, without white space at its end, and must end with ``$``. What stands before the
      match is the prefix.
    - `is_whole`: function of a record by prefixes, and of the lines astray before the next record. It returns
      whether the record has all that it needs and nothing twice, and none of the lines astray can belong to
      it.
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


_RANGE = re.compile(r"PP:(\d{1,9})([FIBW])(\d{1,9})", re.ASCII)
_KIND_OF = {"F": "F", "I": "B", "W": "W", "B": "BW"}
_ILP = "Performing ILP with:"
_ILP_NAMES = ("f", "b", "w", "c", "f_mem", "b_mem", "w_mem", "mem_limit")
_NAMED = rf"(?<!\w)(?:{'|'.join(_ILP_NAMES)})=[^=]*"
_PAIR = re.compile(rf"(?<!\w)(?P<name>{'|'.join(_ILP_NAMES)})=(?P<text>[^=]*?)(?=,?\s*$|,\s*\w+=)")
_FIRST = re.compile(rf"{_ILP}.*$")
_FURTHER = re.compile(rf"{_NAMED}(?:,\s*{_NAMED})*$")
_KIB_PER_MB = 1024
_WAITS = (
    "a range includes the wait for its receive: times are those of the shortest of all microbatches, and too "
    "long where every one of them waited"
)


def read_chrome_trace(*paths: str | Path, comm: int | None = None) -> Profile:
    """Return the profile of torch.profiler traces (PyTorch 2.9 and later), one file per rank.

    Durations come from the ranges ``PP:<stage><F|I|B|W><microbatch>``, where I is PyTorch's letter for our B,
    and B for a fused backward. Stage 0 has no B: its I does nothing, and its W or B is the whole backward. A
    range includes the wait for its receive, so the shortest range over all microbatches counts. An F without
    a backward after it does not count: it belongs to a validation pass, whose forwards are shorter. Traces
    contain neither communication times nor memory. In the profile, communication takes `comm` microseconds,
    or 0 if `comm` is None, and memory is None. The warnings of the profile name the quantities that were not
    measured.

    Raises
    ------
    InputError
        If a file is no trace, or a stage has no range of some kind; the message lists the missing ones. Where
        all backwards but those of stage 0 are fused, there are no ranges of I and W.
    """
    samples: Samples = {}
    actions = [action for path in paths for action in _actions(path)]
    for action in actions:
        if action.trained:
            kind = "W" if action.stage == 0 and action.kind == "B" else _KIND_OF[action.kind]
            took = 0.0 if (action.stage, kind) == (0, "B") else action.duration
            samples.setdefault((action.stage, kind), []).append(took)
    if (0, "W") in samples:
        samples[0, "B"] = [0.0]
    fused = any(action.stage and action.kind == "B" for action in actions)
    where = ", ".join(map(str, paths))
    if not actions:
        raise InputError(
            "has no ranges PP:<stage><F|I|B|W><microbatch>; record with torch.profiler", source=where
        )
    try:
        profile = make_profile(samples, {}, comm)
        return replace(profile, warnings=(*profile.warnings, _WAITS))
    except InputError as error:
        hint = "; its backwards are fused: record a schedule that splits I and W" if fused else ""
        raise InputError(f"{error.rule}{hint}", source=where) from None


class _Action(NamedTuple):
    """A range of PyTorch's runtime; `trained` is False for an F without a backward after it."""

    stage: int
    kind: str
    duration: float
    trained: bool


def _actions(path: str | Path) -> list[_Action]:
    """Return the actions of a trace, which may have them several times: of the host, and of each stream."""
    by_microbatch: dict[tuple[int, int, tuple[str, ...]], list[tuple[float, str, float]]] = defaultdict(list)
    try:
        for key, event in trace_entries(path):
            if key == EVENTS and _is_range(event):
                duration = check_time(_number(event, "dur"), f"{event['name']}.dur")
                if match := _RANGE.fullmatch(event["name"]):
                    lane = tuple(str(event.get(name)) for name in ("cat", "pid", "tid"))
                    ranges = by_microbatch[int(match[1]), int(match[3]), lane]
                    ranges.append((_number(event, "ts"), match[2], duration))
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None
    found = []
    for (stage, *_), ranges in by_microbatch.items():
        ranges.sort(key=itemgetter(0))
        kinds = [kind for _, kind, _ in ranges]
        for (_, kind, duration), following in zip(ranges, [*kinds[1:], "F"], strict=True):
            found.append(_Action(stage, kind, duration, (kind, following) != ("F", "F")))
    return found


def _is_range(event: Any) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X" and str(event.get("name")).startswith("PP:")


def _number(event: dict[str, Any], key: str) -> float:
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("must be a number of microseconds", key=f"{event['name']}.{key}", value=value)
    return float(value)


def read_zero_bubble_log(path: str | Path, *, placement: str | None = None) -> Profile:
    """Return the profile of the last record ``Performing ILP with`` in a log of the zero-bubble runtime.

    The record has the times ``f``, ``b`` and ``w`` of the operations and ``c`` of a message, in microseconds.
    It also has the changes of memory ``f_mem``, ``b_mem`` and ``w_mem`` and the memory limits ``mem_limit``,
    which are in MB in the log and in KiB in the profile. Each value is a tuple with one entry per device, and
    an entry is a number or a list with one number per chunk; only ``c`` is a single number. Loggers and
    launchers may put anything before the lines of the record.

    `placement` determines the stage of each chunk; None means linear for one chunk and V for two chunks.

    Raises
    ------
    InputError
        If the log has no such record, or the record lacks a value; the message names the value.
    """
    try:
        with opened(path) as log:
            return _from_record(_last_record(log.read()), placement)
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def _last_record(text: str) -> dict[str, Any]:
    records = log_records(text, _FIRST, _FURTHER, _is_whole)
    if not records:
        raise InputError(f"has no record '{_ILP} f=..., b=..., w=..., c=...'")
    texts = _texts(records[-1])
    return {name: _value(texts, name) for name in _ILP_NAMES}


def _is_whole(record: Record, _: Record) -> bool:
    return _texts(record).keys() == set(_ILP_NAMES)


def _texts(record: Record) -> dict[str, str]:
    """Return the text after each ``name=`` of a record, up to the next name or the end of the line."""
    found: dict[str, str] = {}
    for line in record:
        for pair in _PAIR.finditer(line[0]):
            found.setdefault(pair["name"], pair["text"].strip())
    return found


def _value(texts: dict[str, str], name: str) -> Any:
    if name not in texts:
        raise InputError(f"the record lacks {name}=", key=name)
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            return ast.literal_eval(texts[name])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise InputError("must be a number or a tuple of numbers", key=name, value=texts[name]) from None


def _from_record(record: dict[str, Any], placement: str | None) -> Profile:
    per_device = {name: _matrix(name, record[name]) for name in _ILP_NAMES if name not in ("c", "mem_limit")}
    devices, chunks = len(per_device["f"]), len(per_device["f"][0])
    placed = Placement(placement or ("linear" if chunks == 1 else "v"), devices, chunks)
    samples: Samples = {}
    memory: dict[tuple[int, str], float] = {}
    for kind in KINDS:
        times, held = per_device[kind.lower()], per_device[f"{kind.lower()}_mem"]
        for device in range(devices):
            for chunk, stage in enumerate(placed.stages_on(device)):
                took = _entry(times, device, chunk, kind.lower())
                samples[stage, kind] = [check_time(took, f"{kind.lower()} of stage {stage}")]
                memory[stage, kind] = _entry(held, device, chunk, f"{kind.lower()}_mem") * _KIB_PER_MB
    profile = make_profile(samples, memory, check_time(_scalar("c", record["c"]), "c"))
    limits = [row[0] for row in _matrix("mem_limit", record["mem_limit"])]
    whole = tuple(round(value * _KIB_PER_MB) for value in limits)
    return replace(profile, limits=whole)


def _matrix(name: str, value: Any) -> list[list[float]]:
    """Return a value of the record as one row per device, with one number per chunk."""
    rows = list(value) if isinstance(value, list | tuple) else [value]
    wide = [list(row) if isinstance(row, list | tuple) else [row] for row in rows]
    if not wide or any(not row for row in wide):
        raise InputError("must have a number for every device", key=name, value=value)
    return [[_scalar(name, number) for number in row] for row in wide]


def _entry(rows: list[list[float]], device: int, chunk: int, name: str) -> float:
    if device >= len(rows) or chunk >= len(rows[device]):
        raise InputError(f"has no value for chunk {chunk} of device {device}", key=name)
    return rows[device][chunk]


def _scalar(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise InputError("must be a number", key=name, value=value)
    return float(value)
