"""The type of the functions that a running solver calls with what it has found."""

from __future__ import annotations

from collections.abc import Callable

from .result import LogEntry

Progress = Callable[[LogEntry], None]
"""A function that a running solver calls with each new incumbent or bound."""


def ignore(_: LogEntry) -> None:
    """Do nothing with a log entry; this is the progress function of a solve that nobody watches."""
