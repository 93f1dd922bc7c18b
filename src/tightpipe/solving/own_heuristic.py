"""A function that a user has written becomes a `Heuristic`, which methods and searches can run."""

from __future__ import annotations

from collections.abc import Callable

from tightpipe.heuristics import Heuristic

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.placement import PLACEMENTS
from ..core.schedule import Order

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
