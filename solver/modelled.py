"""The rules of an instance that a solver may leave out: joint operations, and flushes between iterations."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from tightpipe.core.errors import InputError
from tightpipe.core.instance import Instance


class Rule(StrEnum):
    """A rule that a solver may leave out. The value names the entry of an instance that brings it in."""

    PAIRS = "overlapped"  #: an F and a backward of a device may run together, in a time of their own
    FUSED = "fused"  #: a B and its W may run as one operation, in less time than one after the other
    ABSENT = "backward, weight"  #: some stage has no B or no W
    STEP = "step"  #: a step takes more than its operations: stages get ready, are reduced, optimizers run
    FLUSHES = "iterations"  #: a device ends an iteration before it begins the next


_INSTEAD = {
    Rule.PAIRS: "does not overlap operations; leave it out, or use best, cpsat or improve",
    Rule.FUSED: "does not fuse backwards; leave it out, or use best, cpsat or improve",
    Rule.ABSENT: "needs a B and a W at every stage; use best, cpsat or improve",
    Rule.STEP: "knows no ready, reduce and optimizer; leave them out, or use best, cpsat or improve",
    Rule.FLUSHES: "does not flush between iterations; set flush to false, or use best, cpsat or improve",
}


def rules_of(instance: Instance) -> dict[Rule, Any]:
    """Return those rules that an instance has, with the value of the entry that brings each of them in."""
    found: dict[Rule, Any] = {}
    if instance.costs.overlapped is not None:
        found[Rule.PAIRS] = instance.costs.overlapped
    if instance.fusing_saves:
        found[Rule.FUSED] = instance.costs.fused
    if not instance.complete:
        found[Rule.ABSENT] = 0
    if instance.barrier is not None:
        found[Rule.STEP] = instance.step
    if instance.iterations > 1 and instance.flush:
        found[Rule.FLUSHES] = instance.iterations
    return found


def is_modelled(instance: Instance, *knows: Rule) -> bool:
    """Return whether a solver that `knows` these rules knows all rules of the instance."""
    return rules_of(instance).keys() <= set(knows)


def refuse_unmodelled(solver: str, instance: Instance, *knows: Rule) -> None:
    """Raise an error if the instance has a rule that the solver leaves out.

    Parameters
    ----------
    solver
        Name of the solver, for the message.
    instance
        The problem.
    knows
        The rules that the solver knows.

    Raises
    ------
    InputError
        If there is such a rule. The error names the entry of the instance and what to do instead.
    """
    for rule, value in rules_of(instance).items():
        if rule not in knows:
            raise InputError(f"{solver} {_INSTEAD[rule]}", key=rule.value, value=value)
