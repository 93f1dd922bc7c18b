"""The names of ranges say which operation of the pipeline ran in them.

Three kinds of names are known: ``tightpipe <operation>``, which tightpipe's own runtime records and other
runtimes should record; ``PP:<action>``, which PyTorch's pipeline runtime records by itself; and names that
patterns describe. In PyTorch's actions I is the gradient of the input, which is B here, and B is both
gradients, which is BW here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..base.errors import InputError
from ..model.operation import COMPUTES, Operation, OpKind

_OWN = "tightpipe "
_ACTION = re.compile(r"PP:(\d{1,9})([FIBW])(\d{1,9})", re.ASCII)
_MESSAGE = re.compile(r"PP:\d{1,9}(?:SEND|RECV)_[FB]\d{1,9}", re.ASCII)
_KIND_OF = {"F": OpKind.F, "I": OpKind.B, "B": OpKind.BW, "W": OpKind.W}
_GROUPS = ("stage", "chunk", "microbatch")
_COMM = "COMM"
_MOST_DIGITS = 9


class Named(NamedTuple):
    """What the name of a range says; an entry is None where the name does not say it.

    `waits` tells whether the range may begin before the operation's input has arrived. `kind` is None for a
    range in which messages are sent or received.
    """

    kind: OpKind | None
    stage: int | None
    chunk: int | None
    microbatch: int | None
    waits: bool


Reader = Callable[[str], Named | None]
"""A function that returns what the name of a range says; None if it says nothing about the pipeline."""


def reader_of(patterns: Iterable[str]) -> Reader:
    """Return the reader of names that match one of the patterns.

    Without patterns, it reads names of the forms ``tightpipe <operation>`` and ``PP:<action>``. A pattern is
    a text ``<F|B|W|BW|COMM>:<regular expression>``; COMM is for messages. The named groups ``stage``,
    ``chunk`` and ``microbatch`` are numbers from 0; each may be left out. Raise an InputError if a pattern
    has no such form, or its expression is invalid or has another named group.
    """
    parsed = list(map(_parsed, patterns))
    return (lambda name: _by_patterns(parsed, name)) if parsed else _by_form


_Pattern = tuple[OpKind | None, re.Pattern[str]]


def _parsed(text: str) -> _Pattern:
    kind, colon, expression = text.partition(":")
    if not colon or kind not in (*(one.name for one in COMPUTES), _COMM):
        rule = r"must be <F|B|W|BW|COMM>:<regular expression>, e.g. F:forward (?P<microbatch>\d+)"
        raise InputError(rule, key="pattern", value=text)
    try:
        regex = re.compile(expression, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"not a regular expression: {error}", key="pattern", value=text) from None
    for group in regex.groupindex:
        if group not in _GROUPS:
            raise InputError(f"known groups are {', '.join(_GROUPS)}", key="pattern", value=group)
    return None if kind == _COMM else OpKind[kind], regex


def _by_patterns(patterns: Iterable[_Pattern], name: str) -> Named | None:
    for kind, regex in patterns:
        if match := regex.search(name):
            numbers = {key: _number(key, text) for key, text in match.groupdict().items() if text is not None}
            stage, chunk, microbatch = map(numbers.get, _GROUPS)
            return Named(kind, stage, chunk, microbatch, False)
    return None


def _number(key: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InputError(f"the group {key} must match a number from 0", key="pattern", value=text)
    return int(text)


def _by_form(name: str) -> Named | None:
    if name.startswith(_OWN):
        try:
            kind, stage, microbatch = Operation.parse(name.removeprefix(_OWN))
        except InputError:
            return None
        return Named(kind, stage, None, microbatch, False)
    if match := _ACTION.fullmatch(name):
        return Named(_KIND_OF[match[2]], int(match[1]), None, int(match[3]), True)
    return Named(None, None, None, None, False) if _MESSAGE.fullmatch(name) else None
