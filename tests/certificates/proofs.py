"""Certificates of small instances whose optimum is known, as the content of their files."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from helpers.cases import classed, random_case, wide_case
from helpers.small_instances import known_optima, small_instance

from tightpipe import Instance, Memory, Objective, certify
from tightpipe.model.costs import Step


@dataclass(frozen=True, slots=True)
class Proven:
    """An instance, its least cost, and the content of a certificate's file that proves it."""

    instance: Instance
    optimum: int
    content: dict[str, Any]


def content_of(instance: Instance, bound: int) -> dict[str, Any]:
    """Return the content of a certificate's file as the checker reads it, after a check that it has a proof."""
    certificate = certify(instance, bound, time_limit=60)
    assert not certificate.trusted
    return dict(json.loads(json.dumps(certificate.to_dict())))


def training_step(seed: int) -> Instance:
    """A small instance with fused backwards of random lengths, and with what surrounds a training step."""
    base, rng = small_instance(seed), random.Random(seed)

    def times(count: int) -> list[int]:
        return [rng.randint(0, 9) for _ in range(count)]

    step = Step(times(base.stages), times(base.stages), times(base.devices))
    both = zip(base.costs.backward, base.costs.weight, strict=True)  # type: ignore[arg-type]
    fused = [rng.randint(2, b + w + 1) for b, w in both]
    return replace(base, costs=replace(base.costs, fused=fused), objective=Objective.STEP, step=step)


def wide_instance(seed: int) -> Instance:
    """A small instance without pairs: stages without B or W, microbatches that differ, fused backwards, a step."""
    case = wide_case(seed) if seed % 3 else random_case(seed)
    case = replace(case, costs=replace(case.costs, overlapped=None, pairs=None))
    return case if seed % 3 == 1 else classed(case, seed)


LONG_BACKWARDS = Instance.uniform(
    devices=2, microbatches=3, forward=4, backward=16, weight=3, comm=1, memory=Memory(2, -1, -1, 10)
)
LONG_OPTIMUM = 155
"""In ticks. The bound of three times proves it, and that of two times only 138."""


@cache
def proven_by_three_times() -> Proven:
    """Return an instance whose proof rests on three times."""
    return Proven(LONG_BACKWARDS, LONG_OPTIMUM, content_of(LONG_BACKWARDS, LONG_OPTIMUM))


@cache
def proven_optima() -> tuple[Proven, ...]:
    """Return every 100th known optimum with its proof, but for those that busy links explain."""
    instances = [(small_instance(known.seed), known.optimum) for known in known_optima()[::100]]
    free = [(i, optimum) for i, optimum in instances if not i.costs.link_occupancy]
    return tuple(Proven(i, optimum, content_of(i, optimum)) for i, optimum in free)
