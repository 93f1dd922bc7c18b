"""How many cores there are to work with; batch systems bind a process to some of a machine's."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return on how many cores this process may run, at least 1; where a system does not say, all it has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
