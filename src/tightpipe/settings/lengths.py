"""Distributions of the lengths of microbatches, instances that have such lengths, and those with slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from ..kernels.arrays import Floats
from ..model.costs import Memory, MicrobatchClass, MicrobatchSlice
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


def with_slices(instance: Instance, count: int) -> Instance:
    """Return the instance with microbatches that are cut into slices of equally many tokens.

    What F and B of a stage take longer than its W are the scores of attention, which go with the squares of
    the tokens up to the end of a slice; all else goes with the tokens. The slices of a microbatch add up to
    it, to the tick and to the unit, and a message takes its share of the time, rounded up.

    Parameters
    ----------
    instance
        An instance whose microbatches are alike and whole.
    count
        Number of slices; 1 leaves microbatches whole.
    """
    if count == 1:
        return instance
    costs: Any = instance.costs
    memory: Any = instance.memory
    ends = [Fraction(end, count) for end in range(count + 1)]

    def parts(whole: Sequence[int], linear: Sequence[int]) -> list[list[int]]:
        done = [[round(a * e + (t - a) * e**2) for t, a in zip(whole, linear, strict=True)] for e in ends]
        return [[b - a for a, b in zip(*each, strict=True)] for each in pairwise(done)]

    def times(ticks: Sequence[int]) -> list[list[int]]:
        return parts(ticks, [min(t, w) if w else t for t, w in zip(ticks, costs.weight, strict=True)])

    def deltas() -> Iterator[Memory]:
        passing, *freed = (parts(delta, delta) for delta in (memory.forward, memory.backward, memory.weight))
        trained = [b + w > 0 for b, w in zip(costs.backward, costs.weight, strict=True)]
        for p, b, w in zip(passing, *freed, strict=True):
            held = [-x - y if t else f for f, x, y, t in zip(p, b, w, trained, strict=True)]
            yield Memory(held, b, w)

    each = zip(*(times(getattr(costs, key)) for key in ("forward", "backward", "weight")), strict=True)
    fused = (
        [None] * count
        if costs.fused is None
        else parts(costs.fused, [min(t, 2 * w) for t, w in zip(costs.fused, costs.weight, strict=True)])
    )
    held = [None] * count if memory is None else deltas()
    slices = [
        MicrobatchSlice(forward, backward, weight, f, m)
        for (forward, backward, weight), f, m in zip(each, fused, held, strict=True)
    ]
    comm = [[-(-ticks // count) for ticks in row] for row in costs.comm]
    return replace(instance, costs=replace(costs, comm=comm), slices=slices)
