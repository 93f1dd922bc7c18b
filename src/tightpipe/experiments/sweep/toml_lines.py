"""This module finds the lines of keys and values in a TOML text.

The TOML reader of the standard library does not report these lines.
"""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from typing import Any

_ASSIGNMENT = re.compile(r"""^[ \t]*["']?([\w-]*)["']?[ \t]*=""", re.MULTILINE)


def line_of(text: str, key: str, value: Any = None) -> int:
    """Return the line number, from 1, of a top-level key, or of a value in the key's list.

    If the value is None or is not found in the text, return the line of the key; if the key is not found
    either, return 1.
    """
    assignments = list(_ASSIGNMENT.finditer(text))
    for match, following in zip_longest(assignments, assignments[1:]):
        if match[1] == key:
            stop = len(text) if following is None else following.start()
            found = _find_value(text, value, match.end(), stop)
            return text.count("\n", 0, match.start(1) if found < 0 else found) + 1
    return 1


def _find_value(text: str, value: Any, start: int, stop: int) -> int:
    if value is None or isinstance(value, list | dict):
        return -1
    written = json.dumps(value, ensure_ascii=False)
    forms = [written, f"'{value}'"] if isinstance(value, str) else [written]
    return max(text.find(form, start, stop) for form in forms)
