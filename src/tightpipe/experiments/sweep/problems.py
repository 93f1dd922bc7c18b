"""The problems of a grid are published settings and instance files."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import InputError
from ...core.instance_file import load_instance
from ...core.printable import printable
from ...settings import Setting, load_settings
from .experiment import Problem


def choose_settings(text: str) -> list[Setting]:
    """Return the settings that ``active``, ``all`` or a comma-separated list of names stand for.

    Raises
    ------
    InputError
        If a name is unknown.
    """
    known = load_settings()
    if text == "all":
        return list(known.values())
    if text == "active":
        return [setting for setting in known.values() if setting.active]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"must be active, all, or of {', '.join(known)}", key="settings", value=name)
    return [known[name] for name in names]


def setting_problem(setting: Setting) -> Problem:
    """Return the problem of a published setting, which does not prescribe a placement."""
    return Problem(setting.name, None, lambda placement: setting.instance(placement=placement))


def file_problem(path: str | Path, name: str) -> Problem:
    """Return the problem of an instance file, which has the one placement that the file states.

    What cannot be shown of the name is escaped, because the name goes into tables and databases.

    Raises
    ------
    InputError
        If the file cannot be read or holds no instance.
    """
    instance = load_instance(path)
    return Problem(printable(name), instance.placement.name, lambda _: instance)
