"""The problems of a grid are published settings, instance files, and models by layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.errors import InputError
from ...core.instance import MOST_DEVICES, Instance
from ...core.instance_file import check_keys, instance_from_dict, load_instance, read_data
from ...core.integers import check_int
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
    return Problem(setting.name, setting.instance(), free=True)


def file_problem(path: str | Path, name: str) -> Problem:
    """Return the problem of an instance file, which has the one placement that the file states.

    What cannot be shown of the name is escaped, because the name goes into tables and databases.

    Raises
    ------
    InputError
        If the file cannot be read or holds no instance.
    """
    return Problem(printable(name), load_instance(path))


def layers_problem(path: str | Path, name: str) -> Problem:
    """Return the problem of a file with costs per layer, which is placed on any devices that divide it.

    The file has the keys of an instance file, with one number per layer in place of one per stage, and
    without `devices`, `placement` and `chunks`. Where all layers are alike, `layers` says how many there are.

    Raises
    ------
    InputError
        If the file cannot be read or holds no such model.
    """
    data = read_data(path)
    try:
        return Problem(printable(name), _by_layers(data), free=True, layered=True)
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def _by_layers(data: Any) -> Instance:
    check_keys(data, ("microbatches", *_TIMES), ("layers", *_LAYERED))
    lists = [data[key] for key in _TIMES if isinstance(data[key], list)]
    layers = check_int("layers", data.get("layers", len(lists[0]) if lists else None), 1, MOST_DEVICES)
    for key, value in (("comm", data.get("comm")), ("memory.limit", (data.get("memory") or {}).get("limit"))):
        if isinstance(value, list):
            raise InputError("must be one number: the experiment names the devices", key=key, value=value)
    content = {key: value for key, value in data.items() if key != "layers"}
    return instance_from_dict({**content, "devices": layers, "placement": "linear"})


_TIMES = ("forward", "backward", "weight")
_LAYERED = ("comm", "memory", "objective", "fused", "link_occupancy", "iterations", "flush", "step")
