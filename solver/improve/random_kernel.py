"""Random numbers of compiled loops, each of which draws from a generator of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tightpipe.kernels.compiled import compiled

GeneratorState = NDArray[np.uint64]  # shape (1,), not 0


def generator(seed: int) -> GeneratorState:
    """Return the first state of a generator for `draw`, from a seed of at least 0."""
    return np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)


def seeds_of(seed: int, count: int) -> list[int]:
    """Return the seeds of several generators in a solve with this seed."""
    return [seed * 1024 + k for k in range(count)]


@compiled
def draw(random: GeneratorState) -> float:
    """Return a uniform random number in [0, 1) by Marsaglia's xorshift, and advance the generator."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return float(x >> np.uint64(11)) * 2.0**-53


@compiled
def draw_normal(random: GeneratorState) -> float:
    """Return a normal random number of mean 0 and variance 1 (Box and Muller 1958)."""
    return float(np.sqrt(-2.0 * np.log(1.0 - draw(random))) * np.cos(2.0 * np.pi * draw(random)))
