"""One exception class for each thing that can go wrong, e.g. bad input or a deadlocked order."""

from __future__ import annotations

import errno
import json
from typing import Any

from .printable import printable

_UNSET: Any = object()


class InputError(ValueError):
    """Input that breaks a rule; the message names file, key, value and what would be right.

    Parameters
    ----------
    rule
        The rule that the input breaks, which says what would be right.
    key
        Dotted path of the offending entry, e.g. ``memory.limit[2]``.
    value
        The offending value; left out where there is none, e.g. for a missing key.
    source
        Path of the file that the value came from; empty if it came from no file.
    """

    def __init__(self, rule: str, *, key: str = "", value: Any = _UNSET, source: str = "") -> None:
        self.rule, self.key, self.value, self.source = rule, key, value, source
        super().__init__(self._text())

    def _text(self) -> str:
        entry = self.key
        if self.value is not _UNSET:
            shown = repr(self.value)
            shown = shown if len(shown) <= 60 else f"{shown[:28]}...{shown[-28:]}"
            entry = f"{self.key} = {shown}" if self.key else shown
        rule = " ".join(self.rule.splitlines())  # one line, even if it quotes another program
        return ": ".join(part for part in (printable(self.source), printable(entry), rule) if part)

    def at(self, source: str) -> InputError:
        """Return the same error with `source` as the file that the value came from."""
        return InputError(self.rule, key=self.key, value=self.value, source=source)


def named(key: object) -> str:
    """Return a key of a file as errors name it: in quotes where it is empty or would run into the text."""
    text = str(key)
    return text if text and text.isprintable() and not set(text) & set(" =:\"'") else json.dumps(text)


class StandardOutputError(InputError):
    """Standard output does not take what a command prints, e.g. because the disk is full.

    Parameters
    ----------
    error
        The error of the operating system.

    Attributes
    ----------
    reader_left : bool
        Whether standard output is a pipe whose reader wants no more, as that of ``| head -1``.
    """

    def __init__(self, error: OSError) -> None:
        self.reader_left = error.errno == errno.EPIPE
        super().__init__(f"cannot be written: {error.strerror or error}", source="standard output")


class HeuristicError(InputError):
    """A heuristic that is not tightpipe's own breaks its contract; the message names heuristic and fault.

    Parameters
    ----------
    rule
        What is wrong with the heuristic.
    name
        Name of the heuristic, as results show it.
    """

    def __init__(self, rule: str, name: str) -> None:
        super().__init__(rule, key="heuristic", value=name)


class InfeasibleError(Exception):
    """The instance has no schedule at all; the message says why and which limit would be large enough."""


class NoScheduleError(Exception):
    """A method found no schedule although the instance may have one; the message says why."""


class DeadlockError(Exception):
    """Operations of an order, or devices that run a program, wait for each other in a circle.

    The message names the members of the circle. If an operation waits for another one that no device runs,
    the message may name these two operations instead.
    """


class ContradictionError(Exception):
    """A lower bound is above the cost of a valid schedule: tightpipe or a solver that it trusts is wrong."""


class RefusedError(Exception):
    """The library of instances refuses a schedule or a certificate; the message says why."""


class StoppedError(Exception):
    """Work could not go on, e.g. because the disk is full; the parts that were finished are kept."""


class RunError(RuntimeError):
    """A process of a pipeline run failed or did not end in time; the message has the end of its output."""
