"""A schedule is stored as bytes: the content of its JSON file, compressed with deflate."""

from __future__ import annotations

import json
import zlib

from ...core.schedule import Schedule
from ...core.schedule_file import schedule_from_dict, schedule_to_dict


def pack(schedule: Schedule, method: str, bound: int | None) -> bytes:
    """Return the compressed content of a schedule file, which also states the method and the bound."""
    content = schedule_to_dict(schedule, method=method, bound=bound)
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), level=9)


def unpack(packed: bytes) -> Schedule:
    """Return the schedule that `pack` was given.

    Raises
    ------
    InputError
        If the content is not a schedule of its instance.
    """
    return schedule_from_dict(json.loads(zlib.decompress(packed))).schedule
