"""Whom a solver tells what it has found, while it goes on."""

from __future__ import annotations

from collections.abc import Callable

from .result import LogEntry

Progress = Callable[[LogEntry], None]
"""Called with each new incumbent or bound."""


def ignore(_: LogEntry) -> None:
    """Tell nobody."""
