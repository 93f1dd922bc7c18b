"""Heuristics that somebody else has written: plain functions, taken as `Heuristic`s."""

from __future__ import annotations

from collections.abc import Callable

from tightpipe.heuristics import Heuristic

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.placement import PLACEMENTS
from ..core.schedule import Order

OwnHeuristic = Callable[[Instance], Order] | Heuristic
"""What may stand for the name of a heuristic: a function that orders an instance, or a `Heuristic`."""


def as_heuristic(given: OwnHeuristic, *, key: str, source: str = "") -> Heuristic:
    """Return a function as a heuristic, and a heuristic as it is.

    Parameters
    ----------
    given
        The function, which may be given any instance; it raises `NoScheduleError` for one that it cannot
        order. It is named after its attribute `name` if it has one, else after its ``__name__``.
    key
        What `given` is called in an error.
    source
        Where the function comes from, for people.

    Raises
    ------
    InputError
        If `given` is neither.
    """
    if isinstance(given, Heuristic):
        return given
    if not callable(given):
        raise InputError("must be a function Instance -> Order", key=key, value=given)
    # several iterations without a flush are one order, so that the function gets all of them at once
    return Heuristic(
        name=name_of(given),
        make=given,
        placements=PLACEMENTS,
        memory="as its function decides",
        source=source,
        flushless=given,
    )


def name_of(given: OwnHeuristic) -> str:
    """Return the name that an own heuristic goes by in results."""
    name = getattr(given, "name", None) or getattr(given, "__name__", None)
    return str(name or type(given).__name__)
