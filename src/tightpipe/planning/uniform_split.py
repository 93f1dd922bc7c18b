"""The uniform split, which Megatron-LM makes by default: equally many blocks on every stage.

The embedding goes with the first block and the head with the last one, however long they take. It is the
baseline against which a plan is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from time import perf_counter

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.interruption import raise_again
from ..core.placement import Placement
from ..core.result import Result, Status
from ..export.layer_kinds import EMBEDDING, HEAD, part_of
from ..solving.solve import solve
from .candidate import Candidate, bytes_lacking, instance_of, numbers_of
from .layered_model import Model
from .plan import Plan, no_plan
from .problem import PlanningProblem
from .schedule_families import Family


def uniform_plan(family: Family, allowance: Allowance) -> Plan:
    """Return the plan of a family with the uniform split.

    If there are several numbers of devices or chunks, the fastest plan is returned. If layers may be
    recomputed, the plan recomputes the first blocks of every stage, the same number on each, and as few as
    the memory allows. The plan has no bound, since no other split was looked at. If no plan is found, the
    result has no schedule, and its `reason` says why.

    Parameters
    ----------
    family
        The method, the placement and the planning problem.
    allowance
        Time limit, threads and seed of each solve.

    Raises
    ------
    KeyboardInterrupt
        If a signal ends a solve.
    """
    begun = perf_counter()
    sizes = product(family.problem.cluster.devices, family.problem.space.chunks or (None,))
    searched: list[Candidate] = []
    answers = [_on(family, *size, allowance, searched) for size in sizes]
    plans = [answer for answer in answers if isinstance(answer, Plan)]
    seconds, considered = perf_counter() - begun, len(searched)
    if plans:
        best = min(plans, key=lambda plan: plan.cost or 0)
        return replace(best, seconds=seconds, considered=considered)
    reason = str(answers[-1])
    return no_plan(family.problem, reason, status=Status.UNKNOWN, seconds=seconds, considered=considered)


def _on(
    family: Family, devices: int, chunks: int | None, allowance: Allowance, searched: list[Candidate]
) -> Plan | str:
    """Return the plan on `devices` devices, or the reason why even with full recomputation there is none.

    The function adds to `searched` each candidate for which it looks for a schedule.
    """
    reason = ""
    try:
        for candidate in uniform_candidates(family.problem, Placement(family.placement, devices, chunks)):
            reason = _lack(family.problem, candidate)
            if not reason:
                searched.append(candidate)
            result = None if reason else _solved(family, candidate, allowance)
            if result is not None and result.schedule is not None:
                return _plan(family, candidate, result)
            reason = reason if result is None else result.reason
    except InputError as error:  # the placement is not possible, or has more stages than there are blocks
        return str(error)
    return reason


def uniform_candidates(problem: PlanningProblem, placement: Placement) -> Iterator[Candidate]:
    """Yield the uniform split, recomputing the first 0, 1, 2, ... blocks of each stage, if that is allowed.

    Raises
    ------
    InputError
        As in `uniform_cuts`.
    """
    cuts, blocks = uniform_cuts(problem.model, placement.stages), _blocks(problem.model)
    able = [[i for i in problem.model.recomputable(*stage) if i in blocks] for stage in pairwise(cuts)]
    most = max(map(len, able)) if problem.space.recompute else 0
    for count in range(most + 1):
        yield Candidate(placement, cuts, tuple(tuple(stage[:count]) for stage in able))


def uniform_cuts(model: Model, stages: int) -> tuple[int, ...]:
    """Return the cuts that put equally many blocks on each stage.

    If the number of stages does not divide the number of blocks, the first stages get one block more.

    The embedding and the head are recognized by their kind or by the names that frameworks give them; every
    layer in between is a block.

    Raises
    ------
    InputError
        If there are fewer blocks than stages.
    """
    blocks, count = _blocks(model), len(model.layers)
    each, more = divmod(len(blocks), stages)
    if not each:
        rule = f"has {len(blocks)} blocks, fewer than the {stages} stages of a uniform split"
        raise InputError(rule, key="layers", value=count)
    return (0, *(blocks.start + each * s + min(s, more) for s in range(1, stages)), count)


def _blocks(model: Model) -> range:
    """Return the indices of the blocks; if every layer is an embedding or a head, those of all layers."""
    parts = [part_of(layer.name, layer.kind) for layer in model.layers]
    inner = [i for i, part in enumerate(parts) if part not in (EMBEDDING, HEAD)]
    return range(inner[0], inner[-1] + 1) if inner else range(len(model.layers))


def _lack(problem: PlanningProblem, candidate: Candidate) -> str:
    """Return in words which device lacks most bytes to hold one microbatch; '' if no device lacks any."""
    lack = bytes_lacking(problem, candidate.placement, numbers_of(problem, candidate))
    if not any(lack):
        return ""
    return f"device {lack.index(max(lack))} lacks {max(lack)} bytes to hold one microbatch"


def _solved(family: Family, candidate: Candidate, allowance: Allowance) -> Result:
    result = solve(instance_of(family.problem, candidate), family.method, **allowance.options)
    raise_again(result.reason)  # a solve that a signal ended early gives no plan
    return result


def _plan(family: Family, candidate: Candidate, result: Result) -> Plan:
    return Plan(
        *(family.problem, Status.FEASIBLE, candidate, result.schedule, result.method, None, None),
        *(result.seconds, 1, (), result.reason),
    )
