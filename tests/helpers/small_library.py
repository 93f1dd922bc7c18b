"""A library of one small instance, for which schedules of several costs and a proof of the optimum are known."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from helpers.command_line import SMALL
from tightpipe import Schedule, certify, solve
from tightpipe.library import Claim, Library, Record
from tightpipe.model.instance_file import instance_from_dict, instance_to_dict
from tightpipe.model.schedule_file import schedule_to_dict

INSTANCE = instance_from_dict(SMALL)
COSTS = {"1f1b-v": 284, "modulo": 278, "greedy-v": 248, "cpsat": 246}
"""Costs of schedules by method, the last one optimal."""
FORMULA, OPTIMUM = 244, 246


@cache
def _schedule(method: str) -> Schedule:
    schedule = solve(INSTANCE, method, workers=1).schedule
    assert schedule is not None
    return schedule


def schedule_of(method: str) -> dict[str, Any]:
    """The content of the schedule file of a method, to be changed at will."""
    content = schedule_to_dict(_schedule(method), method=method)
    assert content["cost"] == COSTS[method]
    return content


@cache
def _proof(bound: int) -> str:
    certificate = certify(INSTANCE, bound)
    assert not certificate.trusted
    return json.dumps(certificate.to_dict())


def proof_of(bound: int) -> dict[str, Any]:
    """The content of a certificate's file, to be changed at will."""
    return dict(json.loads(_proof(bound)))


def claim(value: int, method: str = "formula") -> Claim:
    return Claim(value, method, "somebody", "2026-01-02", "1.2.3+abcdef0", 0.5)


def small_library(folder: Path, cost: str | None = "1f1b-v", bound: int = FORMULA) -> Library:
    """A library in a folder, with the schedule of a method or none, and with a trusted bound."""
    folder.mkdir(exist_ok=True)
    library = Library(folder)
    record = Record("small", "tests", "a test", INSTANCE, None, claim(bound))
    if cost is None:
        library.put(record)
    else:
        known = Record(
            record.id, record.family, record.source, INSTANCE, claim(COSTS[cost], cost), record.bound
        )
        library.put(known, order=_schedule(cost).order)
    return library


def unknown_schedule() -> dict[str, Any]:
    """A valid schedule of an instance that the library does not have."""
    other = instance_from_dict(SMALL | {"comm": 2})
    schedule = solve(other, "greedy-v").schedule
    assert schedule is not None
    return schedule_to_dict(schedule)


def no_proof() -> dict[str, Any]:
    """A certificate of the optimum that only says whom to trust."""
    return {
        "format": "tightpipe-proof-1",
        "instance": instance_to_dict(INSTANCE),
        "bound": OPTIMUM,
        "proof": {"kind": "trusted", "by": "cp-sat"},
    }


def files(library: Library) -> dict[str, bytes]:
    """All files of a library by name, but for its lock."""
    paths = [path for path in library.root.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(library.root).as_posix(): path.read_bytes() for path in paths}
