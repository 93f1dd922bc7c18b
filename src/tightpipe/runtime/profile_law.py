"""Profiles of microbatches of several lengths become a law, from which batches of other lengths follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..base.errors import InputError
from ..model.costs import Objective, objective_of
from ..model.law import COEFFICIENTS, CostLaw, Law, Laws, Microbatch, fit
from ..model.placement import Placement
from .profile_table import Profile

_FEWEST_LENGTHS = 3  # as many as a law has coefficients
_LINEAR = COEFFICIENTS[:2]


class FittedLaw(NamedTuple):
    """A law, and the largest relative error that it leaves at what it was fitted to."""

    law: CostLaw
    error: float


def fit_law(
    profiles: Mapping[Microbatch, Profile],
    placement: Placement,
    *,
    limit: int | Sequence[int] | None = None,
    objective: Objective | str = Objective.DEVICE_SPAN,
) -> FittedLaw:
    """Fit the laws of the costs of all stages to profiles of microbatches of several lengths.

    Times are fitted to a constant, the tokens and the squares of the lengths, and memory and messages to a
    constant and the tokens (`tightpipe.model.law.fit`).

    Parameters
    ----------
    profiles
        The profiles by the lengths of the microbatch's sequences, for three or more numbers of tokens.
    placement
        Which device runs which stage.
    limit
        Memory limit in the unit of the profiles, a number or one number per device; None takes that of the
        profiles.
    objective
        The objective of the instances.

    Raises
    ------
    InputError
        If there are fewer than three lengths, if a stage has an operation at some lengths only, or if the
        profiles do not fit the placement.
    """
    lengths, known = list(profiles), list(profiles.values())
    totals = [sum(one) for one in lengths]
    if len(set(totals)) < _FEWEST_LENGTHS:
        rule = f"must be {_FEWEST_LENGTHS} or more different numbers of tokens, to fit a law"
        raise InputError(rule, key="lengths", value=totals)
    stages = [len(profile.forward) for profile in known]
    if len(set(stages)) > 1:
        raise InputError("must be as many at each length", key="stages", value=stages)
    errors: list[float] = []

    def laws(
        name: str, values: Callable[[Profile], Sequence[int]], powers: tuple[str, ...] = COEFFICIENTS
    ) -> Laws:
        found = []
        for stage, samples in enumerate(zip(*map(values, known), strict=True)):
            if any(samples) and not all(samples):
                rule = f"must be above 0 at all lengths or 0 at all, at stage {stage}"
                raise InputError(rule, key=name, value=samples)
            law, error = fit(list(zip(lengths, samples, strict=True)), powers)
            errors.append(error)
            found.append(law)
        return tuple(found)

    memory = None
    if all(profile.memory is not None for profile in known):
        held = laws("memory.forward", lambda one: one.memory[0] if one.memory else (), _LINEAR)
        needed = laws("memory.weight", lambda one: [-w for w in one.memory[2]] if one.memory else (), _LINEAR)
        trained = [b > 0 or w > 0 for b, w in zip(known[0].backward, known[0].weight, strict=True)]
        freed = tuple(w + h * -1 if t else Law() for h, w, t in zip(held, needed, trained, strict=True))
        memory = held, freed, tuple(w * -1 for w in needed)
    limit = known[0].limits if limit is None else limit
    if limit is not None and memory is None:
        raise InputError("the profile has no memory", key="limit", value=limit)
    fused = laws("fused", lambda one: one.fused or ()) if all(one.fused for one in known) else None
    (comm,) = laws("comm", lambda one: (one.comm,), _LINEAR)
    law = CostLaw(
        placement,
        laws("forward", lambda one: one.forward),
        laws("backward", lambda one: one.backward),
        laws("weight", lambda one: one.weight),
        fused=fused,
        comm=comm,
        memory=memory,
        limit=limit if limit is None or isinstance(limit, int) else tuple(limit),
        objective=objective_of(objective),
    )
    return FittedLaw(law, max(errors))
