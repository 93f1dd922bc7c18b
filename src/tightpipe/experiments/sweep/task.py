"""A task is one solve of a sweep, with a text from which any process can run it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from ...core.engine_version import engine_version
from ...core.instance import Instance
from ...core.instance_file import instance_from_dict, instance_to_dict
from ...core.params.solve_params import DEFAULTS, SolveParams
from ...solving.methods import find_method
from .row import Row

ORTOOLS = version("ortools")
_LABELS = ("problem", "uneven", "comm", "memory", "costs")
_OPTIONS = ("method", "warm_start", "time_limit", "seed", "threads")


@dataclass(frozen=True, slots=True)
class Task:
    """A solve as it is before it is run.

    Parameters
    ----------
    row
        The row as it is before the solve; its key is also the key of the task.
    payload
        JSON with the instance, the instance that the method sees (null for the same), the options, and the
        engine that has to run it.
    """

    row: Row
    payload: str

    @property
    def instance(self) -> Instance:
        """The instance that is solved."""
        return instance_of(self.payload)


def instance_of(payload: str) -> Instance:
    """Return the instance that is solved when the payload of a task is run."""
    return instance_from_dict(json.loads(payload)["instance"])


def make_task(
    row: Row,
    instance: Instance,
    shown: Instance | None,
    max_memory: float | None = None,
    params: SolveParams = DEFAULTS,
) -> Task:
    """Return the task of a row, with key, hash of the instance, engine and versions filled in.

    Parameters
    ----------
    row
        What is known of the solve before it is run.
    instance
        The instance that is solved.
    shown
        The instance that the method sees instead, such as one with median costs; None for the same.
    max_memory
        GB of memory at which CP-SAT and MILP end with the best schedule so far; None for no cap.
    params
        The numbers that tune the searches.
    """
    engine = engine_version()
    data: dict[str, Any] = {
        "engine": engine,
        "instance": instance_to_dict(instance),
        "shown": None if shown is None else instance_to_dict(shown),
        **{name: getattr(row, name) for name in _OPTIONS},
    }
    if max_memory is not None:  # most sweeps have no cap, and the keys of their stored solves stay the same
        data["max_memory"] = max_memory
    if changed := params.changed():
        data["params"] = changed
    labels = {name: getattr(row, name) for name in _LABELS}
    # so that rows of another version, or of earlier code of an installed heuristic, have other keys
    code = find_method(row.method).code
    key = _hash({**data, **labels, "versions": [ORTOOLS, code] if code else [ORTOOLS]})
    filled = replace(
        row,
        key=key,
        instance_hash=_hash(data["instance"]),
        engine=engine,
        ortools_version=ORTOOLS,
    )
    return Task(filled, _canonical(data))


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _hash(data: Any) -> str:
    return hashlib.sha256(_canonical(data).encode()).hexdigest()[:16]
