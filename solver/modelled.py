"""Rules of an instance that solvers may leave out: overlapped operations, flushes between iterations."""

from __future__ import annotations

from typing import Any

from tightpipe.core.errors import InputError
from tightpipe.core.instance import Instance


def is_modelled(instance: Instance, *, flushes: bool = False) -> bool:
    """Whether a solver knows all rules of the instance; `flushes` says whether it flushes iterations."""
    return _left_out(instance, flushes) is None


def refuse_unmodelled(solver: str, instance: Instance, *, flushes: bool = False) -> None:
    """Refuse an instance with a rule that the solver of this name leaves out.

    Raises
    ------
    InputError
        Naming the entry of the instance, and what to do instead.
    """
    left_out = _left_out(instance, flushes)
    if left_out is not None:
        key, value, rule = left_out
        raise InputError(f"{solver} {rule}", key=key, value=value)


def _left_out(instance: Instance, flushes: bool) -> tuple[str, Any, str] | None:
    """Return key, value and what to say of an entry that a solver does not model, if there is one."""
    if instance.costs.overlapped is not None:
        rule = "does not overlap operations; leave it out, or use a heuristic that does"
        return "overlapped", instance.costs.overlapped, rule
    if instance.iterations > 1 and instance.flush and not flushes:
        rule = "does not flush between iterations; solve one iteration, or set flush to false"
        return "iterations", instance.iterations, rule
    return None
