"""The names of ranges say which operation of the pipeline ran in them.

Three kinds of names are known: ``tightpipe <operation>``, which tightpipe's own runtime records and other
runtimes should record; ``PP:<action>``, which PyTorch's pipeline runtime records by itself; and names that
patterns describe. In PyTorch's actions I is the gradient of the input, which is B here, and B is both
gradients, which is BW here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Pattern:
    """A kind of operation (None for messages), and the regular expression for the names of its ranges.

    The named groups ``stage``, ``chunk`` and ``microbatch`` are numbers from 0; each may be left out.
    """

    kind: OpKind | None
    regex: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Return the pattern of a text ``<F|B|W|BW|COMM>:<regular expression>``; COMM is for messages.

        Raise an InputError if the text has no such form, or the expression is invalid or has another named
        group.
        """
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
        return cls(None if kind == _COMM else OpKind[kind], regex)


@dataclass(frozen=True, slots=True)
class Names:
    """A reader of the names of ranges.

    With patterns, it reads only names that match one of them. Without patterns, it reads names of the forms
    ``tightpipe <operation>`` and ``PP:<action>``.
    """

    patterns: tuple[Pattern, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Names:
        """Return the `Names` with the patterns of these texts, whose form `Pattern.parse` describes."""
        return cls(tuple(map(Pattern.parse, texts)))

    def wanted(self, name: str) -> bool:
        """Return whether a range of this name says something about the pipeline."""
        return self.read(name) is not None

    def read(self, name: str) -> Named | None:
        """Return what a name says; None if it says nothing about the pipeline."""
        if self.patterns:
            return next((found for p in self.patterns if (found := _by_pattern(p, name))), None)
        return _own(name) if name.startswith(_OWN) else _action(name)


def _by_pattern(pattern: Pattern, name: str) -> Named | None:
    match = pattern.regex.search(name)
    if match is None:
        return None
    numbers = {key: _number(key, text) for key, text in match.groupdict().items() if text is not None}
    stage, chunk, microbatch = map(numbers.get, _GROUPS)
    return Named(pattern.kind, stage, chunk, microbatch, False)


def _number(key: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InputError(f"the group {key} must match a number from 0", key="pattern", value=text)
    return int(text)


def _own(name: str) -> Named | None:
    try:
        kind, stage, microbatch = Operation.parse(name.removeprefix(_OWN))
    except InputError:
        return None
    return Named(kind, stage, None, microbatch, False)


def _action(name: str) -> Named | None:
    if match := _ACTION.fullmatch(name):
        return Named(_KIND_OF[match[2]], int(match[1]), None, int(match[3]), True)
    return Named(None, None, None, None, False) if _MESSAGE.fullmatch(name) else None
