"""Heuristics that are not tightpipe's own: functions of the user, and heuristics of installed packages.

A package declares its heuristics as entry points. Its pyproject.toml lists them by name::

    [project.entry-points."tightpipe.heuristics"]
    breadth-first = "my_package:breadth_first_order"

The object behind a name is a function ``Instance -> Order`` or a `tightpipe.heuristics.Heuristic`. Loading
a heuristic imports its package. This happens when all heuristics are needed, for a list or as warm starts,
and when a method is asked for by a name that is not one of tightpipe's own. If a heuristic cannot be loaded,
a warning says so, and only this heuristic is left out.

The name ``my_file:my_function`` needs no package: it names a function in a module that can be imported or
that lies in the working directory.
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
from tightpipe.heuristics.registry import HeuristicError

from ..base.errors import InfeasibleError, InputError, NoScheduleError
from ..model.instance import Instance
from ..model.placement import PLACEMENTS
from ..model.schedule import Order
from ..params.budget import Budget

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


OwnHeuristic = Callable[[Instance], Order] | Heuristic
"""A user's heuristic, given instead of a name: a function that orders an instance, or a `Heuristic`."""


def as_heuristic(given: OwnHeuristic, *, key: str, source: str = "") -> Heuristic:
    """Return a function as a `Heuristic`; a `Heuristic` is returned as it is.

    Parameters
    ----------
    given
        The function, or a `Heuristic`. A function is called with instances of every placement, and raises
        `NoScheduleError` for an instance that it cannot order. Its attribute `name`, or else its
        ``__name__``, is the name of the heuristic.
    key
        The name of the argument or of the entry point, which an error shows.
    source
        The origin of the function, e.g. a paper, which lists of methods show.

    Raises
    ------
    InputError
        If `given` is neither a function nor a `Heuristic`.
    """
    if isinstance(given, Heuristic):
        return given
    if not callable(given):
        raise InputError("must be a function Instance -> Order", key=key, value=given)
    # without a flush all iterations form one order, so the function is given them at once
    return Heuristic(
        name=name_of(given),
        make=given,
        placements=PLACEMENTS,
        memory="as its function decides",
        source=source,
        flushless=given,
    )


def name_of(given: OwnHeuristic) -> str:
    """Return the name of a user's heuristic, as results show it."""
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    return str(name or type(given).__name__)


GROUP = "tightpipe.heuristics"
"""The group of entry points under which packages declare heuristics."""

SEARCHES = ("best", "block", "cpsat", "improve", "milp")
"""Names of the methods that are not heuristics. No heuristic may have one of these names."""

_Make = Callable[..., Order]


@dataclass(frozen=True, slots=True)
class Installed:
    """A heuristic of an installed package, or of a module that a name such as ``module:function`` locates."""

    #: named after its entry point or by ``module:function``; its functions raise `HeuristicError` instead of
    #: any exception that tightpipe does not know
    heuristic: Heuristic
    #: hash of the file that defines the heuristic's function, or of the package's name and version if there
    #: is no such file, by which results of different versions of the function are told apart
    code: str


@cache
def installed_heuristics() -> dict[str, Installed]:
    """Return the heuristics of installed packages by name, and warn of those that cannot be used."""
    from importlib.metadata import entry_points  # imported late: slow, and rarely needed

    found: dict[str, Installed] = {}
    for entry in entry_points(group=GROUP):
        try:
            _refuse_taken(entry.name, found)
            found[entry.name] = _load(entry)
        except (Exception, SystemExit) as error:  # to import a module is to run it, and it may raise anything
            warn(f"heuristic {entry.name} ({_package(entry)}) is left out: {_said(error)}")
    return found


@cache
def heuristic_at(path: str) -> Installed:
    """Return the heuristic at ``module:function``; the module may lie in the working directory.

    Raise an InputError if there is no such module or function, or it is not a heuristic.
    """
    from importlib.metadata import EntryPoint  # imported late, as above

    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last, so that no file here hides an installed module
    try:
        return _load(EntryPoint(path, path, GROUP))
    except (Exception, SystemExit) as error:  # to import a module is to run it, and it may raise anything
        raise InputError(f"no heuristic is there: {_said(error)}", key="method", value=path) from None


@cache
def warn(text: str) -> None:
    """Print a warning on stderr, unless this process has printed the same one before."""
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
    """Return a function that runs `make` and turns unknown exceptions into a one-line `HeuristicError`."""

    @wraps(make)
    def explained(instance: Instance, **limits: Budget) -> Order:
        try:
            return make(instance, **limits)
        except (InputError, InfeasibleError, NoScheduleError):
            raise
        except Exception as error:
            raise HeuristicError(f"failed: {_said(error)}", name) from error

    return explained


def _said(error: BaseException) -> str:
    """Return an error's text in one line, with its class, file and line unless it is an `InputError`."""
    text = " ".join(str(error).split())
    if isinstance(error, InputError):
        return text
    passed = (__file__, "importlib")  # files of frames that only lead to the heuristic's code
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
    except (TypeError, OSError):  # the heuristic is a callable object, or its function has no file
        content = package.encode()
    return hashlib.sha256(content).hexdigest()[:16]
