"""Heuristics of installed packages, which announce them under an entry point.

A package's pyproject.toml lists them by name::

    [project.entry-points."tightpipe.heuristics"]
    breadth-first = "my_package:breadth_first_order"

What stands behind a name is a function ``Instance -> Order`` or a `tightpipe.heuristics.Heuristic`. Packages
are imported when all heuristics are wanted, as a list or as warm starts, or one by a name that is not one of
tightpipe's own; most commands want neither. A package that cannot be used is a warning: nothing but its own
heuristics is missing then.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING

from tightpipe.heuristics import HEURISTICS, Heuristic

from ..core.errors import HeuristicError, InfeasibleError, InputError, NoScheduleError
from ..core.instance import Instance
from ..core.schedule import Order
from .own_heuristic import OwnHeuristic, as_heuristic

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tightpipe.heuristics"
"""The group of the entry points."""

SEARCHES = ("best", "cpsat", "improve", "milp")
"""Names of methods that are no heuristics, and that no heuristic may have."""

_Make = Callable[[Instance], Order]


@dataclass(frozen=True, slots=True)
class Installed:
    """A heuristic of an installed package.

    Parameters
    ----------
    heuristic
        The heuristic under the name of its entry point. Whatever goes wrong in its functions is raised as
        `HeuristicError`.
    code
        Hash of the file that its function stands in, so that results can be told from those of an earlier
        version of the function; of the package's version where there is no such file.
    """

    heuristic: Heuristic
    code: str


@cache
def installed_heuristics() -> dict[str, Installed]:
    """Return the heuristics of installed packages by name, and warn of those that cannot be used."""
    from importlib.metadata import entry_points  # takes a while, and most commands need no list of methods

    found: dict[str, Installed] = {}
    for entry in entry_points(group=GROUP):
        try:
            _refuse_taken(entry.name, found)
            found[entry.name] = _load(entry)
        except (Exception, SystemExit) as error:  # whatever somebody's module does while it is imported
            warn(f"heuristic {entry.name} ({_package(entry)}) is left out: {_said(error)}")
    return found


@cache
def warn(text: str) -> None:
    """Say a warning on stderr; the same one is said once."""
    print(f"tightpipe: warning: {text}", file=sys.stderr)


def _refuse_taken(name: str, found: dict[str, Installed]) -> None:
    if name in HEURISTICS or name in SEARCHES:
        raise InputError("tightpipe has a method of this name; rename the entry point")
    if name in found:
        raise InputError("another package has a heuristic of this name; rename the entry point")


def _load(entry: EntryPoint) -> Installed:
    given: OwnHeuristic = entry.load()
    heuristic = replace(as_heuristic(given, key=entry.value, source=_package(entry)), name=entry.name)
    flushless = heuristic.flushless and _explained(heuristic.flushless, entry.name)
    explained = replace(heuristic, make=_explained(heuristic.make, entry.name), flushless=flushless)
    return Installed(explained, _code(heuristic.make, _package(entry)))


def _explained(make: _Make, name: str) -> _Make:
    """Return the function with what goes wrong in it told in one line, as a command shows no traceback."""

    @wraps(make)
    def explained(instance: Instance) -> Order:
        try:
            return make(instance)
        except (InputError, InfeasibleError, NoScheduleError):
            raise
        except Exception as error:
            raise HeuristicError(f"failed: {_said(error)}", name) from error

    return explained


def _said(error: BaseException) -> str:
    """Return what an error says, and where it was raised unless it is one of tightpipe's own."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return text
    passed = (__file__, "importlib")  # what only led to the package's own code
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if not any(p in f.filename for p in passed)
    ]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {text}{where}"


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def _code(make: _Make, package: str) -> str:
    try:
        content = Path(inspect.getfile(inspect.unwrap(make))).read_bytes()
    except (TypeError, OSError):  # a callable object, or no file
        content = package.encode()
    return hashlib.sha256(content).hexdigest()[:16]
