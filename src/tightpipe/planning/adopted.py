"""Plans and bounds of one planning problem that are taken over for another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.errors import InputError
from ..core.result import Proof, Status
from ..core.retime import retime
from ..core.validate import validate
from .candidate import instance_of
from .candidate_file import check_candidate
from .plan import Plan


def adopted(found: Plan, other: Plan | None) -> Plan:
    """Return `found`, or the plan `other` of another problem if it is cheaper in the problem of `found`.

    The plan `other` keeps its partition, recomputation and orders, and gets the best start times that the
    problem of `found` allows. If `other` does not fit that problem, or is None, `found` is returned.
    """
    moved = None if other is None else _moved(found, other)
    if moved is None or moved.cost is None or (found.cost is not None and found.cost <= moved.cost):
        return found
    return _with_status(moved)


def _moved(found: Plan, other: Plan) -> Plan | None:
    if other.candidate is None or other.schedule is None:
        return None
    try:
        check_candidate(found.problem, other.candidate)
        instance = instance_of(found.problem, other.candidate)
        schedule = retime(instance, other.schedule.order)
    except InputError:
        return None
    if validate(instance, schedule):
        return None
    return replace(found, candidate=other.candidate, schedule=schedule, method=other.method)


def with_shared_bounds(plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans, with each bound raised to the largest bound of the later plans if that is larger.

    Each search space must lie within the next one, as it does if the plans are for more and more memory. Then
    a bound under more memory also holds under less, because whatever fits into less memory fits into more. A
    plan without a bound gets none.
    """
    found: list[Plan] = []
    bound, proof = 0, None
    for plan in reversed(plans):
        if plan.bound is not None and plan.bound >= bound:
            bound, proof = plan.bound, plan.proof
        found.append(_raised(plan, bound, proof))
    return found[::-1]


def _raised(plan: Plan, bound: int, proof: Proof | None) -> Plan:
    if plan.bound is None or plan.bound >= bound:
        return plan
    return _with_status(replace(plan, bound=bound, proof=proof))


def _with_status(plan: Plan) -> Plan:
    """Return the plan with the status that follows from its bound; an optimal plan needs no reason."""
    if plan.cost == plan.bound:
        return replace(plan, status=Status.OPTIMAL, reason="")
    return replace(plan, status=Status.FEASIBLE)
