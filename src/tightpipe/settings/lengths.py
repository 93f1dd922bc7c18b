"""Distributions of the lengths of microbatches, and instances whose microbatches have such lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..kernels.arrays import Floats
from ..model.costs import Memory, MicrobatchClass
from ..model.instance import Instance

SEED = 48
_LEAST, _MOST = 0.1, 10.0


def _normal(rng: np.random.Generator, sigma: float, count: int) -> Floats:
    return np.clip(rng.normal(1, sigma, count), _LEAST, _MOST)


def _lognormal(rng: np.random.Generator, sigma: float, count: int) -> Floats:
    return np.asarray(np.exp(rng.normal(0, sigma, count)))


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, float, int], Floats]] = {
    "normal": _normal,
    "lognormal": _lognormal,
}
"""Lengths as multiples of a usual one, before they are divided by their mean.

- `normal`: a normal distribution around 1, cut off at 0.1 and 10, as in the simulations of DynaPipe.
- `lognormal`: the logarithm is normal. Lengths of sequences in public sets for fine-tuning are of this kind.

References
----------
Jiang et al., "DynaPipe: Optimizing Multi-task Training through Dynamic Pipelines", arXiv:2311.10418.
"""


def relative_lengths(distribution: str, sigma: float, count: int, seed: int = SEED) -> Floats:
    """Return the lengths of a batch as multiples of their mean, in the sequence in which they arrive."""
    lengths = DISTRIBUTIONS[distribution](np.random.default_rng(seed), sigma, count)
    return np.asarray(lengths / lengths.mean())


def with_lengths(instance: Instance, lengths: Sequence[float] | Floats) -> Instance:
    """Return the instance with microbatches that take so many times as long and as much memory as its own.

    Times are rounded to whole ticks, at least 1; limits stay.

    Parameters
    ----------
    instance
        An instance whose microbatches are alike.
    lengths
        For each microbatch its length as a multiple of that of the instance.
    """
    costs: Any = instance.costs
    memory: Any = instance.memory
    trained = [b + w > 0 for b, w in zip(costs.backward, costs.weight, strict=True)]

    def times(ticks: Sequence[int], length: float) -> tuple[int, ...]:
        return tuple(t and max(1, round(t * length)) for t in ticks)

    def deltas(length: float) -> Memory:
        forward, *freed = (
            [round(delta * length) for delta in part]
            for part in (memory.forward, memory.backward, memory.weight)
        )
        held = [-b - w if t else f for f, b, w, t in zip(forward, *freed, trained, strict=True)]
        return Memory(held, *freed)

    def of(length: float) -> MicrobatchClass:
        return MicrobatchClass(
            1,
            times(costs.forward, length),
            times(costs.backward, length),
            times(costs.weight, length),
            fused=None if costs.fused is None else times(costs.fused, length),
            memory=None if memory is None else deltas(length),
        )

    return replace(instance, classes=[of(float(length)) for length in lengths])
