"""Solve an instance with a method by name."""

from __future__ import annotations


def methods() -> list[str]:
    """Return the names of all methods."""
    return []


def solve() -> None:
    """Not there yet."""
