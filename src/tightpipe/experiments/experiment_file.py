"""Experiments are read from TOML files; every error names file, line and key."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..base.errors import InputError, check_choice, check_int, named
from ..base.files import check_keys, read_text, read_toml
from ..model.placement import PLACEMENTS
from ..params.solve_params import params_from_dict
from ..registry.methods import all_methods, find_method
from .axes import (
    UNCHANGED,
    parse_comm,
    parse_devices,
    parse_discount,
    parse_memory,
    parse_memory_of_1f1b,
    parse_microbatches,
    parse_objective,
    parse_offload,
    parse_uneven,
)
from .experiment import (
    Entry,
    Experiment,
    FigureKind,
    Problem,
    choose_settings,
    file_problem,
    layers_problem,
    setting_problem,
)
from .placing import Backwards, Copies


def load_experiment(path: str | Path) -> Experiment:
    """Read an experiment file and check all of it.

    Raise an InputError if the file cannot be read or an entry is wrong. The message is one line that names
    file, line, key, value and what would be right.
    """
    data = read_toml(path)
    try:
        return _experiment(data, Path(path).parent)
    except InputError as error:
        raise located(error, path) from None


def located(error: InputError, path: str | Path) -> InputError:
    """Return the same error with the file and the line of its key."""
    value = error.value if isinstance(error.value, str | int | float) else None
    key = error.key.split("[")[0].split(".")[-1].strip('"')  # of a table, the key within it
    return error.at(f"{path}:{line_of(read_text(path), key, value)}")


def _experiment(data: Mapping[str, Any], folder: Path) -> Experiment:
    for key in data:
        if key not in _AXES and key not in _SCALARS:
            known = ", ".join([*_AXES, *_SCALARS])
            raise InputError(f"unknown key; known are {known}", key=named(key), value=data[key])
    if "methods" not in data:
        raise InputError("missing key 'methods': a list with at least one value")
    axes: dict[str, Any] = {key: _axis(key, data[key], parse) for key, parse in _AXES.items() if key in data}
    problems = [problem for chosen in axes.pop("settings", ()) for problem in chosen]
    for key, read in _FILES.items():
        patterns = axes.pop(key, ())
        problems += [problem for pattern in patterns for problem in _files(key, read, folder, pattern)]
    if not problems:
        key = "settings" if "settings" in data else "instances"
        raise InputError("the grid is empty: name at least one setting or instance file", key=key)
    _refuse_shared_names(problems)
    axes["memory"] = (*axes.pop("memory", ()), *axes.pop("memory_of_1f1b", ())) or (UNCHANGED,)
    scalars = {key: _scalar(key, data[key]) for key in _SCALARS if key in data}
    names, baseline = [entry.name for entry in axes["methods"]], scalars.get("baseline")
    if baseline is not None:
        check_choice("baseline", baseline, *names)
    experiment = Experiment(problems=tuple(problems), **axes, **scalars)
    longest = max(experiment.time_limits)
    if experiment.hard_limit <= longest:
        usual = "" if "time_limits" in data else ", which is the usual one, as the file has no time_limits"
        rule = f"must be above the longest time limit, {longest:g}{usual}"
        raise InputError(rule, key="hard_limit", value=experiment.hard_limit)
    return experiment


def _refuse_shared_names(problems: Sequence[Problem]) -> None:
    """Refuse two problems of one name, as rows and bounds of one would pass for those of the other."""
    known: dict[str, Problem] = {}
    for problem in problems:
        if known.setdefault(problem.name, problem) != problem:
            key = "layers" if problem.layered else "instances"
            rule = "another problem has this name too, by which rows are told apart: rename a file"
            raise InputError(rule, key=key, value=problem.name)


def _axis(key: str, values: Any, parse: Callable[[Any], Any]) -> tuple[Any, ...]:
    if not isinstance(values, list):
        raise InputError("must be a list", key=key, value=values)
    if not values:
        raise InputError("the grid is empty: the list must hold at least one value", key=key)
    parsed = []
    for index, value in enumerate(values):
        if value in values[:index]:
            raise InputError("stands twice in the list", key=key, value=value)
        try:
            parsed.append(parse(value))
        except InputError as error:
            inner = f"{error.key} = {error.value!r} " if isinstance(value, dict) and error.key else ""
            raise InputError(f"{inner}{error.rule}", key=key, value=value) from None
    return tuple(parsed)


def _scalar(key: str, value: Any) -> Any:
    try:
        return _SCALARS[key](value)
    except InputError as error:
        within = f".{error.key}" if isinstance(value, dict) and error.key else ""
        raise InputError(error.rule, key=f"{key}{within}", value=error.value) from None


def _files(
    key: str, read: Callable[[str | Path, str], Problem], folder: Path, pattern: str
) -> Iterator[Problem]:
    paths = sorted(glob.glob(os.path.join(glob.escape(str(folder)), pattern)))
    if not paths:
        raise InputError(f"no such file in {folder}", key=key, value=pattern)
    for path in paths:
        try:
            yield read(path, os.path.relpath(Path(path).with_suffix(""), folder))
        except InputError as error:
            raise InputError(str(error), key=key) from None


_FILES = {"instances": file_problem, "layers": layers_problem}
"""The keys whose values are files, each with the function that reads a file as a problem of a given name."""


def _entry(value: Any) -> Entry:
    """Return the method of a name, or of a table that also says its placement, backwards and copies."""
    if not isinstance(value, dict):
        rule = 'the name of a method, or a table such as {method = "best", placement = "loop"}'
        return Entry(find_method(_text(value, rule)).name)
    check_keys(value, ("method",), ("placement", "chunks", "backwards", "copies", "name"))
    choices = ("placement", PLACEMENTS), ("backwards", tuple(Backwards)), ("copies", tuple(Copies))
    for key, known in choices:
        if key in value and value[key] not in known:
            raise InputError(f"must be one of {', '.join(known)}", key=key, value=value[key])
    if "chunks" in value:
        check_int("chunks", value["chunks"], 1)
    return Entry(
        find_method(_text(value["method"], "the name of a method")).name,
        value.get("placement"),
        value.get("chunks"),
        Backwards(value.get("backwards", Backwards.ANY)),
        Copies(value.get("copies", Copies.ANY)),
        _text(value.get("name", ""), "a text"),
    )


def _warm_start(value: Any) -> str:
    heuristics = [method.name for method in all_methods().values() if method.kind == "heuristic"]
    if isinstance(value, str) and ":" in value:
        return find_method(value).name
    return check_choice("", value, "best", "none", *heuristics)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"must be {what}", value=value)
    return value


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise InputError("must be a number above 0", value=value)
    return float(value)


def _slurm(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError("must be a table of options of dask_jobqueue.SLURMCluster", value=value)
    return value


_AXES: dict[str, Callable[[Any], Any]] = {
    "settings": lambda value: list(
        map(setting_problem, choose_settings(_text(value, "active, all, or the name of a setting")))
    ),
    **dict.fromkeys(
        ("instances", "layers"),
        lambda value: _text(value, "a file, relative to the experiment's, or a pattern"),
    ),
    "devices": parse_devices,
    "microbatches": parse_microbatches,
    "uneven": parse_uneven,
    "comm": parse_comm,
    "discount": parse_discount,
    "offload": parse_offload,
    "memory": parse_memory,
    "memory_of_1f1b": parse_memory_of_1f1b,
    "objectives": parse_objective,
    "methods": _entry,
    "costs": lambda value: check_choice("", value, "true", "median"),
    "warm_starts": _warm_start,
    "time_limits": _positive,
    "seeds": lambda value: check_int("seeds", value, 0, 2**31 - 1),
}
"""The keys whose values are lists, each with the function that reads one value of its list."""

_SCALARS: dict[str, Callable[[Any], Any]] = {
    "threads": lambda value: check_int("threads", value, 1, 1024),
    "hard_limit": _positive,
    "memory_cap": _positive,
    "figure": lambda value: FigureKind(check_choice("", value, *FigureKind)),
    "baseline": lambda value: _text(value, "the name of a method, as it is shown"),
    "params": params_from_dict,
    "slurm": _slurm,
}


_ASSIGNMENT = re.compile(r"""^[ \t]*["']?([\w-]*)["']?[ \t]*=""", re.MULTILINE)


def line_of(text: str, key: str, value: Any = None) -> int:
    """Return the line number, from 1, of a top-level key, or of a value in the key's list."""
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
