"""The two rules that a solver may leave out: operations that overlap, and flushes between iterations."""

from __future__ import annotations

from typing import Any

from tightpipe.core.errors import InputError
from tightpipe.core.instance import Instance


def is_modelled(instance: Instance, *, flushes: bool = False) -> bool:
    """Return whether a solver knows all rules of the instance.

    Parameters
    ----------
    instance
        The problem.
    flushes
        Whether the solver models flushes between iterations. No solver models operations that overlap.
    """
    return _left_out(instance, flushes) is None


def refuse_unmodelled(solver: str, instance: Instance, *, flushes: bool = False) -> None:
    """Raise an error if the instance has a rule that the solver leaves out.

    Parameters
    ----------
    solver
        Name of the solver, for the message.
    instance, flushes
        As in `is_modelled`.

    Raises
    ------
    InputError
        If there is such a rule. The error names the entry of the instance and what to do instead.
    """
    left_out = _left_out(instance, flushes)
    if left_out is not None:
        key, value, rule = left_out
        raise InputError(f"{solver} {rule}", key=key, value=value)


def _left_out(instance: Instance, flushes: bool) -> tuple[str, Any, str] | None:
    """Return key and value of an entry of the instance that a solver does not model, and a message about it.

    The result is None if the solver models all rules of the instance.
    """
    if instance.costs.overlapped is not None:
        rule = "does not overlap operations; leave it out, or use a heuristic that does"
        return "overlapped", instance.costs.overlapped, rule
    if instance.iterations > 1 and instance.flush and not flushes:
        rule = "does not flush between iterations; solve one iteration, or set flush to false"
        return "iterations", instance.iterations, rule
    return None
