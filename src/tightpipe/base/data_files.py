"""Files of data, in JSON or TOML: reading them, their keys, and the kinds of files that there are."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import InputError, about_file, named
from .files import read_text


def check_keys(data: Any, required: tuple[str, ...], optional: tuple[str, ...], where: str = "") -> None:
    """Raise an InputError unless `data` is a table with all required and no unknown keys.

    `where` is the path of the table in its file, which errors name; it is empty for the whole file.
    """
    name = where.rstrip(".")
    if not isinstance(data, dict):
        raise InputError("must be a table of keys and values", key=name, value=data)
    for key in data:
        if key not in required + optional:
            rule = f"unknown key{f' in {name}' if name else ''}; known are {', '.join(required + optional)}"
            raise InputError(rule, key=named(key), value=data[key])
    for key in required:
        if key not in data:
            known = ", ".join(required)
            raise InputError(f"missing key '{key}'{f' in {name}' if name else ''}; required are {known}")


def read_data(path: str | Path) -> Any:
    """Return the content of a file, which is TOML if its name ends in ``.toml``, else JSON.

    Raise an InputError that says where the fault is if the file cannot be read, is empty or no valid TOML or
    JSON, has a key twice in a table, is nested too deeply or has an integer of too many digits.
    """
    return read_toml(path) if Path(path).suffix == ".toml" else read_json(path)


def read_json(path: str | Path) -> Any:
    """Return the content of a JSON file; raise what `read_data` raises."""
    return _parsed(path, "JSON", lambda text: json.loads(text, object_pairs_hook=_unique))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the content of a TOML file; raise what `read_data` raises."""
    found: dict[str, Any] = _parsed(path, "TOML", tomllib.loads)
    return found


def json_content(text: str) -> Any:
    """Return the content of a JSON text of another program; raise what `read_data` raises."""
    return _content(text, "JSON", json.loads)


def _parsed(path: str | Path, form: str, parse: Callable[[str], Any]) -> Any:
    with about_file(path):
        return _content(read_text(path), form, parse)


def _content(text: str, form: str, parse: Callable[[str], Any]) -> Any:
    if not text.strip():
        raise InputError(f"not {form}, or truncated: it is empty")
    try:
        return parse(text)
    except tomllib.TOMLDecodeError as error:
        rule = f"not TOML, or truncated: {error}"
    except json.JSONDecodeError as error:
        rule = f"not JSON, or truncated: {error.msg} at line {error.lineno} column {error.colno}"
    except RecursionError:
        rule = "nested too deeply"
    except InputError as error:
        rule = error.rule
    except ValueError:  # Python refuses to convert integers of more digits
        rule = f"holds an integer of more than {sys.get_int_max_str_digits()} digits"
    raise InputError(rule)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise InputError(f"key '{twice}' stands twice")
    return table


_KINDS = {
    "plan": {"problem", "schedule"},
    "program": {"instance", "nodes", "devices"},
    "schedule": {"instance", "devices"},
    "task list": {"nodes"},
    "model": {"layers", "cluster"},
    "instance": {"microbatches"},
}
"""The keys that every file of each kind has; a file is of the first kind of which it has all keys."""


def is_kind(data: Any, kind: str) -> bool:
    """Return whether a file's content is a table of the given kind, judged by its keys."""
    return isinstance(data, dict) and _kind_of(data) == kind


def check_kind(data: Any, wanted: str) -> None:
    """Raise an InputError if a file's content is no table, or is clearly of another kind than `wanted`.

    For example, a schedule is refused where an instance is wanted. A table of no known kind is accepted,
    because its reader names the keys that are missing.
    """
    if not isinstance(data, dict):
        raise InputError(f"must be a table of keys and values, as in {_article(wanted)} file", value=data)
    kind = _kind_of(data) or wanted
    if kind != wanted:
        raise InputError(f"is {_article(kind)} file, must be {_article(wanted)} file")


def _kind_of(data: dict[str, Any]) -> str | None:
    return next((kind for kind, keys in _KINDS.items() if keys <= set(data)), None)


def _article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
